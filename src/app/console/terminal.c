// SPDX-License-Identifier: MIT
// Text on a terminal: its colours, what fits, and the screen that `stats
// --watch` draws again.

#include "app/console/terminal.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool
skr_colour_is_wanted(int fd)
{
    const char *refused = getenv("NO_COLOR"), *terminal = getenv("TERM");
    if (refused != NULL && refused[0] != '\0')
        return false;
    return terminal != NULL && terminal[0] != '\0' &&
           strcmp(terminal, "dumb") != 0 && isatty(fd);
}

const char *
skr_colour_of(bool is_wanted, enum skr_log_level level)
{
    if (!is_wanted)
        return "";
    switch (level) {
    case SKR_LOG_ERROR: return "\033[31m";
    case SKR_LOG_WARNING: return "\033[33m";
    case SKR_LOG_INFO: return "\033[32m";
    case SKR_LOG_DEBUG: return "\033[2m";
    }
    return "";
}

const char *
skr_colour_bold(bool is_wanted)
{
    return is_wanted ? "\033[1m" : "";
}

const char *
skr_colour_end(bool is_wanted)
{
    return is_wanted ? "\033[0m" : "";
}

static bool
is_continuation(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

size_t
skr_terminal_length(const char *text)
{
    size_t length = 0;
    for (; *text != '\0'; text++)
        length += !is_continuation(*text);
    return length;
}

size_t
skr_terminal_bytes(const char *text, size_t length)
{
    size_t at = 0;
    while (text[at] != '\0') {
        if (!is_continuation(text[at]) && length-- == 0)
            break;
        at++;
    }
    return at;
}

void
skr_print_plain(const char *text, size_t size, bool keeps_lines, FILE *out)
{
    for (size_t i = 0; i < size;) {
        size_t control = skr_text_control_size(text + i, size - i);
        bool is_line = keeps_lines && (text[i] == '\n' || text[i] == '\t');
        putc(control > 0 && !is_line ? ' ' : text[i], out);
        i += control > 0 ? control : 1;
    }
}

static struct winsize
window_of(FILE *out)
{
    struct winsize window = {.ws_col = 0};
    if (!isatty(fileno(out)))
        return window;
    if (ioctl(fileno(out), TIOCGWINSZ, &window) != 0 || window.ws_col == 0 ||
        window.ws_row == 0)
        window = (struct winsize){.ws_col = 80, .ws_row = 24};
    return window;
}

size_t
skr_terminal_width(FILE *out)
{
    return window_of(out).ws_col;
}

static size_t
count_lines(const char *text)
{
    size_t count = 0;
    for (; *text != '\0'; text++)
        count += *text == '\n';
    return count;
}

// No line is ended but by the next one: the last may be the lowest that there
// is, and an end would move all of them up.
void
skr_terminal_draw(const char *text, FILE *out)
{
    const struct winsize window = window_of(out);
    size_t width = window.ws_col, height = window.ws_row;
    size_t count = count_lines(text);
    size_t shown = count <= height ? count : height - 1;
    fputs("\033[H", out);
    for (size_t i = 0; i < shown; i++) {
        size_t size = strcspn(text, "\n"),
               fitting = skr_terminal_bytes(text, width);
        fputs(i == 0 ? "" : "\n", out);
        skr_print_plain(text, fitting < size ? fitting : size, false, out);
        fputs("\033[K", out);
        text += size + 1;
    }
    if (shown < count)
        fprintf(out, "%s… %zu more\033[K", shown == 0 ? "" : "\n",
                count - shown);
    fputs("\033[J", out);
}
