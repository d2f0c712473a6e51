// SPDX-License-Identifier: MIT
// Keeps a process for a handler, asks it, and believes nothing that it says
// beyond the protocol.

#include "inbox/child.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "inbox/child_process.h"
#include "inbox/inside.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LONGEST_LINE = 65536,
    ENDING_MS = 1000,
    // For one that is about to end by itself to be asked how.
    DYING_MS = 200,
    // For the message in hand, once a stop is wanted.
    STOPPING_MS = 5000,
};

struct skr_child {
    struct skr_arena texts;
    struct skr_child_options options;  // texts are in the arena above
    char **words;                      // ends with NULL
    struct skr_process process;
    bool has_answered;  // this process
    uint64_t number;    // of the last message
    struct skr_backoff backoff;
    int64_t start_ms;  // not before this; by skr_clock_ms()

    struct skr_text output;  // what was read and is not yet a line
    struct skr_child_errors errors;
};

enum said {
    SAID_LINE,      // there is one in output
    SAID_TOO_MUCH,  // and no end of it
    SAID_NOTHING,   // within its time
    SAID_TOO_LATE,  // and a stop cut that short
    SAID_DEAF,      // it closed its input before it had all of the line
    SAID_END,       // of its output
};

// Ends with NULL. NULL: memory is out.
static char **
copy_texts(struct skr_arena *arena, const char *const *texts, size_t count)
{
    char **copies = skr_arena_take(arena, (count + 1) * sizeof(*copies));
    if (copies == NULL)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        copies[i] = skr_arena_text(arena, texts[i], strlen(texts[i]));
        if (copies[i] == NULL)
            return NULL;
    }
    copies[count] = NULL;
    return copies;
}

static bool
copy_options(struct skr_child *child, const struct skr_child_options *options)
{
    struct skr_arena *texts = &child->texts;
    child->options = *options;
    child->options.consumer =
        skr_arena_text(texts, options->consumer, strlen(options->consumer));
    child->options.message_name = skr_arena_text(texts, options->message_name,
                                                 strlen(options->message_name));
    size_t withheld_count = 0;
    while (options->withheld[withheld_count] != NULL)
        withheld_count++;
    child->words = copy_texts(texts, options->words, options->word_count);
    char **withheld = copy_texts(texts, options->withheld, withheld_count);
    child->options.withheld = (const char *const *)withheld;
    return child->options.consumer != NULL &&
           child->options.message_name != NULL && child->words != NULL &&
           withheld != NULL;
}

enum skr_code
skr_child_new(const struct skr_child_options *options, struct skr_child **child,
              struct skr_error *error)
{
    if (options->word_count == 0)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "a command needs at least the name of a program");
    enum skr_code code = skr_process_check(options->words[0], error);
    if (code != SKR_OK)
        return code;
    struct skr_child *made = calloc(1, sizeof(*made));
    if (made == NULL || !copy_options(made, options)) {
        skr_child_free(made);
        return skr_fail_memory(error);
    }
    made->backoff = (struct skr_backoff){.first_ms = 100, .longest_ms = 5000};
    *child = made;
    return SKR_OK;
}

void
skr_child_free(struct skr_child *child)
{
    if (child == NULL)
        return;
    skr_child_end(child);
    skr_text_fini(&child->output);
    skr_arena_fini(&child->texts);
    free(child);
}

static void
log_text(const struct skr_child *child, enum skr_log_level level,
         const char *event, const char *text)
{
    skr_log(&child->options.log, level, event,
            SKR_LOG_TEXT("name", child->options.consumer),
            SKR_LOG_TEXT("message", child->options.message_name),
            SKR_LOG_TEXT("text", text));
}

static void
hear(struct skr_child *child)
{
    if (child->process.pid != 0)
        skr_child_read_errors(&child->errors, &child->options,
                              &child->process.messages);
}

static void
end_hearing(struct skr_child *child)
{
    skr_child_end_errors(&child->errors, &child->options);
}

// Ends the process after a failure; the next one starts after a pause that
// grows until one of them answers.
static void
drop(struct skr_child *child, int64_t patience_ms, char how[SKR_ENDING_SIZE])
{
    hear(child);
    end_hearing(child);
    skr_process_end(&child->process, patience_ms, how);
    skr_text_clear(&child->output);
    child->start_ms = skr_clock_ms() + skr_backoff_next(&child->backoff);
}

void
skr_child_end(struct skr_child *child)
{
    char how[SKR_ENDING_SIZE];
    if (child == NULL || child->process.pid == 0)
        return;
    hear(child);
    end_hearing(child);
    skr_process_end(&child->process, ENDING_MS, how);
    skr_text_clear(&child->output);
}

static size_t
line_size(const struct skr_child *child)
{
    const char *end =
        child->output.size == 0
            ? NULL
            : memchr(child->output.bytes, '\n', child->output.size);
    return end == NULL ? 0 : (size_t)(end - child->output.bytes) + 1;
}

// False at the end of its output.
static bool
read_output(struct skr_child *child)
{
    char bytes[4096];
    while (child->output.size <= LONGEST_LINE && line_size(child) == 0) {
        ssize_t size = read(child->process.output, bytes, sizeof(bytes));
        if (size == 0)
            return false;
        if (size < 0)
            return errno == EAGAIN || errno == EINTR;
        skr_text_add(&child->output, bytes, (size_t)size);
    }
    return true;
}

// Hands over what is left of the line. False when the child does not read it
// any more.
static bool
write_input(struct skr_child *child, const struct skr_text *line, size_t *sent)
{
    ssize_t size = skr_process_write(&child->process, line->bytes + *sent,
                                     line->size - *sent);
    if (size > 0)
        *sent += (size_t)size;
    return size >= 0 || errno == EAGAIN || errno == EINTR;
}

// Writes a line, which may be empty, and reads one.
static enum said
talk(struct skr_child *child, const struct skr_text *line)
{
    int64_t end_ms = skr_clock_ms() + child->options.timeout_ms;
    int wake_fd = child->options.wake_fd;
    bool is_cut_short = false;
    size_t sent = 0;
    for (;;) {
        struct skr_process *process = &child->process;
        struct pollfd files[] = {
            {.fd = process->output, .events = POLLIN},
            {.fd = process->messages, .events = POLLIN},
            {.fd = sent < line->size ? process->input : -1, .events = POLLOUT},
            {.fd = wake_fd, .events = POLLIN},
        };
        int64_t left_ms = end_ms - skr_clock_ms();
        if (left_ms <= 0)
            return is_cut_short ? SAID_TOO_LATE : SAID_NOTHING;
        if (poll(files, 4, left_ms < 1000 ? (int)left_ms : 1000) < 0)
            continue;
        if (files[3].revents != 0) {
            // It stays readable, and tells nothing more.
            wake_fd = -1;
            is_cut_short = left_ms > STOPPING_MS;
            if (is_cut_short)
                end_ms = skr_clock_ms() + STOPPING_MS;
        }
        if (files[1].revents != 0)
            hear(child);
        bool is_open = files[0].revents == 0 || read_output(child);
        if (line_size(child) > 0)
            return SAID_LINE;
        if (child->output.size > LONGEST_LINE)
            return SAID_TOO_MUCH;
        if (!is_open)
            return SAID_END;
        if (files[2].revents != 0 && !write_input(child, line, &sent))
            return SAID_DEAF;
    }
}

// It ended or stopped listening, and not over the message that is next. One
// that ends with success has had enough, and is replaced at once.
static void
bury(struct skr_child *child)
{
    char how[SKR_ENDING_SIZE];
    drop(child, DYING_MS, how);
    bool is_fine = strcmp(how, "exit code 0") == 0;
    if (is_fine)
        child->start_ms = 0;
    log_text(child, is_fine ? SKR_LOG_INFO : SKR_LOG_WARNING, "child.ended",
             how);
}

// Between two messages: nothing is to be heard, and it is there.
static bool
is_quiet(struct skr_child *child)
{
    char how[SKR_ENDING_SIZE];
    hear(child);
    bool is_open = read_output(child);
    if (is_open && child->output.size == 0)
        return true;
    if (child->output.size == 0) {
        bury(child);
        return false;
    }
    drop(child, 0, how);
    log_text(child, SKR_LOG_WARNING, "child.ended",
             "it wrote a line that nobody asked for, and was killed");
    return false;
}

static enum skr_code
fail_ready(struct skr_child *child, enum said said, struct skr_error *error)
{
    char how[SKR_ENDING_SIZE];
    struct skr_error shown = {0};
    size_t size = line_size(child);
    if (size > 1)
        skr_fail(&shown, SKR_OK, SKR_GIVE_UP, "%.*s",
                 size < 100 ? (int)size - 1 : 100, child->output.bytes);
    drop(child, said == SAID_END ? DYING_MS : 0, how);
    return skr_fail(error, SKR_UNAVAILABLE, SKR_TRY_AGAIN,
                    "the command of %.100s did not say {\"ready\":true}: %s%s",
                    child->options.message_name,
                    said == SAID_LINE ? "its first line is " : how, shown.text);
}

static enum skr_code
start(struct skr_child *child, struct skr_error *error)
{
    static const struct skr_text nothing;
    struct skr_arena arena = {0};
    char how[SKR_ENDING_SIZE];
    int64_t wait_ms = child->start_ms - skr_clock_ms();
    if (wait_ms > 0 && skr_clock_sleep(child->options.wake_fd, wait_ms))
        return skr_fail(error, SKR_STOPPED, SKR_TRY_AGAIN,
                        "stop was requested");
    enum skr_code code = skr_process_start(&child->process, child->words,
                                           child->options.withheld, error);
    child->has_answered = false;
    if (code != SKR_OK) {
        drop(child, 0, how);
        return code;
    }
    enum said said = talk(child, &nothing);
    bool is_ready =
        said == SAID_LINE &&
        skr_child_is_ready_line(child->output.bytes, line_size(child), &arena);
    skr_arena_fini(&arena);
    if (!is_ready)
        return fail_ready(child, said, error);
    size_t size = line_size(child);
    // What stands behind it is found to be too much by is_quiet().
    memmove(child->output.bytes, child->output.bytes + size,
            child->output.size - size);
    child->output.size -= size;
    return SKR_OK;
}

static enum skr_code
ensure(struct skr_child *child, struct skr_error *error)
{
    if (child->process.pid != 0 && is_quiet(child))
        return SKR_OK;
    enum skr_code code = start(child, error);
    if (code != SKR_OK || is_quiet(child))
        return code;
    return skr_fail(error, SKR_UNAVAILABLE, SKR_TRY_AGAIN,
                    "the command of %.100s wrote more than {\"ready\":true} "
                    "or ended before it had a message",
                    child->options.message_name);
}

static enum skr_verdict
fail_talk(struct skr_child *child, enum said said, struct skr_error *reason)
{
    char how[SKR_ENDING_SIZE];
    const char *name = child->options.message_name;
    drop(child, said == SAID_END ? DYING_MS : 0, how);
    switch (said) {
    case SAID_TOO_MUCH:
        skr_fail(reason, SKR_MALFORMED, SKR_GIVE_UP,
                 "the command of %.100s wrote more than %d bytes without the "
                 "end of a line",
                 name, LONGEST_LINE);
        break;
    case SAID_NOTHING:
        skr_fail(reason, SKR_TIMEOUT, SKR_GIVE_UP,
                 "the command of %.100s gave no answer within %u s and was "
                 "killed",
                 name, (unsigned)(child->options.timeout_ms / 1000));
        break;
    case SAID_TOO_LATE:
        // What a longer wait would have brought is not known.
        skr_fail(reason, SKR_STOPPED, SKR_TRY_AGAIN,
                 "stop was requested, and the command of %.100s gave no answer "
                 "within %d s; it was killed",
                 name, STOPPING_MS / 1000);
        break;
    case SAID_DEAF:
        skr_fail(reason, SKR_UNAVAILABLE, SKR_GIVE_UP,
                 "the command of %.100s closed its standard input", name);
        break;
    case SAID_LINE:
    case SAID_END:
        skr_fail(reason, SKR_UNAVAILABLE, SKR_GIVE_UP,
                 "the command of %.100s ended without an answer: %s", name,
                 how);
        break;
    }
    return SKR_RETRY;
}

static enum skr_verdict
fail_answer(struct skr_child *child, const struct skr_error *problem,
            struct skr_error *reason)
{
    char how[SKR_ENDING_SIZE];
    drop(child, 0, how);
    skr_fail(reason, SKR_MALFORMED, SKR_GIVE_UP,
             "the command of %.100s gave an answer that is none: %s",
             child->options.message_name, problem->text);
    return SKR_RETRY;
}

// The line in output. An answer to an earlier message was one too many: what
// it says of this one is not known, and it is not this one's fault.
static enum skr_verdict
judge(struct skr_child *child, struct skr_error *reason)
{
    struct skr_arena arena = {0};
    struct skr_answer answer = {0};
    struct skr_error problem = {0};
    char how[SKR_ENDING_SIZE];
    size_t size = line_size(child);
    enum skr_verdict verdict = SKR_RETRY;
    enum skr_code code = skr_child_read_answer(child->output.bytes, size,
                                               &arena, &answer, &problem);
    if (code != SKR_OK) {
        verdict = fail_answer(child, &problem, reason);
    } else if (answer.number != child->number) {
        drop(child, 0, how);
        skr_fail(reason, SKR_UNAVAILABLE, SKR_TRY_AGAIN,
                 "the command of %.100s answered another message than it was "
                 "given",
                 child->options.message_name);
    } else {
        verdict = answer.verdict;
        skr_fail(reason, SKR_REFUSED, SKR_GIVE_UP, "%.250s",
                 answer.error == NULL ? "" : answer.error);
        memmove(child->output.bytes, child->output.bytes + size,
                child->output.size - size);
        child->output.size -= size;
        skr_backoff_reset(&child->backoff);
        child->has_answered = true;
    }
    skr_arena_fini(&arena);
    return verdict;
}

// Asks a process that is there. One that ends or stops listening after it has
// answered others may never have seen this message: a new one is asked.
static enum skr_code
ask(struct skr_child *child, const struct skr_text *line, enum said *said,
    struct skr_error *error)
{
    for (int tries = 0;; tries++) {
        enum skr_code code = ensure(child, error);
        if (code != SKR_OK)
            return code;
        bool is_used = child->has_answered;
        *said = talk(child, line);
        if (!is_used || tries > 0 || (*said != SAID_DEAF && *said != SAID_END))
            return SKR_OK;
        bury(child);
    }
}

enum skr_verdict
skr_child_handle(const struct skr_delivery *delivery, struct skr_tx tx,
                 void *user, struct skr_error *reason)
{
    struct skr_child *child = user;
    struct skr_text line = {0};
    enum said said = SAID_NOTHING;
    (void)tx;
    if (skr_child_write_line(delivery, ++child->number, &line, reason) !=
        SKR_OK) {
        reason->remedy = SKR_TRY_AGAIN;
        return SKR_RETRY;
    }
    enum skr_code code = ask(child, &line, &said, reason);
    skr_text_fini(&line);
    if (code != SKR_OK)
        return SKR_RETRY;
    enum skr_verdict verdict = said == SAID_LINE
                                   ? judge(child, reason)
                                   : fail_talk(child, said, reason);
    hear(child);
    end_hearing(child);
    return verdict;
}

enum skr_code
skr_consumer_handle_command(struct skr_consumer *consumer,
                            const char *message_name, const char *const *words,
                            size_t count, const char *const *withheld,
                            uint32_t timeout_ms, struct skr_error *error)
{
    struct skr_child *child = NULL;
    enum skr_code code = skr_child_new(
        &(struct skr_child_options){
            .consumer = consumer->options.name,
            .message_name = message_name,
            .words = words,
            .word_count = count,
            .withheld = withheld,
            .timeout_ms = timeout_ms,
            .wake_fd = consumer->stop_fd,
            .log = consumer->log,
        },
        &child, error);
    if (code == SKR_OK)
        code = skr_handlers_add(&consumer->handlers, message_name,
                                &(struct handler){
                                    .run = skr_child_handle,
                                    .user = child,
                                    .child = child,
                                    .is_outside = true,
                                },
                                error);
    if (code != SKR_OK)
        skr_child_free(child);
    return code;
}
