// SPDX-License-Identifier: MIT
// Keeps a process for a handler, asks it, and believes nothing that it says
// beyond the protocol. First the process, then the handler; the lines that are
// exchanged are child_line.c. Between fork and exec only calls are made that
// are safe in a program with threads.

#include "inbox/child.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "inbox/consumer_internals.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LONGEST_LINE = 65536,
    ENDING_MS = 1000,
    // For one that is about to end by itself to be asked how.
    DYING_MS = 200,
    // For the message in hand, once a stop is wanted.
    STOPPING_MS = 5000,
    // Lines of its standard error for one message.
    MOST_LOGGED = 20,
    LOOK_AGAIN_MS = 5,
    ENDING_SIZE = 48,
};

// A process with pipes to its three standard streams.
struct process {
    pid_t pid;             // 0: there is none
    int input;             // to write to
    int output, messages;  // to read its standard output and error from
};

static bool
is_runnable(const char *path)
{
    struct stat status;
    if (stat(path, &status) != 0)
        return false;
    if (S_ISDIR(status.st_mode))
        errno = EISDIR;
    return !S_ISDIR(status.st_mode) && access(path, X_OK) == 0;
}

// Of a script that begins with #! and an interpreter that is not there the
// system says that the script itself is not there.
static enum skr_code
check_interpreter(const char *program, struct skr_error *error)
{
    char line[256] = "";
    int file = open(program, O_RDONLY | O_CLOEXEC);
    ssize_t size = file < 0 ? 0 : read(file, line, sizeof(line) - 1);
    if (file >= 0)
        close(file);
    if (size < 3 || strncmp(line, "#!", 2) != 0)
        return SKR_OK;
    char *name = line + 2 + strspn(line + 2, " \t");
    name[strcspn(name, "\n")] = '\0';
    const char *end = strchr(name, '\r');
    name[strcspn(name, " \t\r")] = '\0';
    if (name[0] != '/' || (end == NULL && access(name, X_OK) == 0))
        return SKR_OK;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "cannot run %.200s: its first line names %.200s%s%s",
                    program, name, end == NULL ? ": " : " ",
                    end != NULL ? "and ends with CR LF; LF alone is needed"
                                : strerror(errno));
}

enum skr_code
skr_process_check(const char *program, struct skr_error *error)
{
    const char *at = getenv("PATH");
    if (strchr(program, '/') != NULL) {
        if (is_runnable(program))
            return check_interpreter(program, error);
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "cannot run %.200s: %s", program, strerror(errno));
    }
    while (at != NULL) {
        char path[PATH_MAX];
        size_t size = strcspn(at, ":");
        int length = snprintf(path, sizeof(path), "%.*s%s%s", (int)size, at,
                              size == 0 ? "" : "/", program);
        if (length < PATH_MAX && is_runnable(path))
            return SKR_OK;
        at = at[size] == ':' ? at + size + 1 : NULL;
    }
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "there is no program %.200s in PATH", program);
}

static void
close_all(int *files, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (files[i] >= 0)
            close(files[i]);
}

// Standard streams of ours that are closed would give their numbers to a pipe,
// and the child would lose it when its own are put in place.
static bool
make_pipe(int ends[2])
{
    int made[2];
    if (pipe2(made, O_CLOEXEC) != 0)
        return false;
    for (int i = 0; i < 2; i++)
        ends[i] = made[i] > STDERR_FILENO
                      ? made[i]
                      : fcntl(made[i], F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    for (int i = 0; i < 2; i++)
        if (made[i] != ends[i])
            close(made[i]);
    return ends[0] >= 0 && ends[1] >= 0;
}

enum { INPUT, OUTPUT, MESSAGES, REPORT, PIPES };

// In the child: only what is safe after a fork of a program with threads.
_Noreturn static void
become(char *const *words, char *const *environment, int pipes[PIPES][2],
       pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(127);
    dup2(pipes[INPUT][0], STDIN_FILENO);
    dup2(pipes[OUTPUT][1], STDOUT_FILENO);
    dup2(pipes[MESSAGES][1], STDERR_FILENO);
    // What is open without a mark to be closed is no business of the child's.
    close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execvpe(words[0], words, environment);
    int reason = errno;
    ssize_t written = write(pipes[REPORT][1], &reason, sizeof(reason));
    (void)written;
    _exit(127);
}

static bool
is_withheld(const char *const *withheld, const char *variable)
{
    size_t size = strcspn(variable, "=");
    for (; *withheld != NULL; withheld++)
        if (strlen(*withheld) == size &&
            strncmp(*withheld, variable, size) == 0)
            return true;
    return false;
}

// Made before the fork: memory is not to be asked for after it. The caller
// frees it. NULL: memory is out.
static char **
make_environment(const char *const *withheld)
{
    size_t count = 0, kept = 0;
    while (environ[count] != NULL)
        count++;
    char **environment = calloc(count + 1, sizeof(*environment));
    for (size_t i = 0; environment != NULL && i < count; i++)
        if (!is_withheld(withheld, environ[i]))
            environment[kept++] = environ[i];
    return environment;
}

// 0 once the program runs, which closes the pipe; else why it does not.
static int
read_report(int report)
{
    int reason = 0;
    ssize_t size;
    do
        size = read(report, &reason, sizeof(reason));
    while (size < 0 && errno == EINTR);
    return size == sizeof(reason) ? reason : 0;
}

static enum skr_code
fail_start(const char *program, int reason, struct skr_error *error)
{
    return skr_fail(error, SKR_UNAVAILABLE, SKR_TRY_AGAIN, "cannot run %s: %s",
                    program, strerror(reason));
}

static enum skr_code
spawn(struct process *process, char *const *words, char *const *environment,
      struct skr_error *error)
{
    int pipes[PIPES][2];
    pid_t parent = getpid();
    int reason = 0;
    memset(pipes, -1, sizeof(pipes));
    for (int i = 0; i < PIPES; i++)
        if (!make_pipe(pipes[i])) {
            reason = errno;
            close_all(&pipes[0][0], sizeof(pipes) / sizeof(int));
            return fail_start(words[0], reason, error);
        }
    pid_t pid = fork();
    if (pid == 0)
        become(words, environment, pipes, parent);
    reason = pid < 0 ? errno : 0;
    int theirs[] = {pipes[INPUT][0], pipes[OUTPUT][1], pipes[MESSAGES][1],
                    pipes[REPORT][1]};
    int ours[] = {pipes[INPUT][1], pipes[OUTPUT][0], pipes[MESSAGES][0]};
    close_all(theirs, 4);
    if (pid > 0) {
        setpgid(pid, pid);
        reason = read_report(pipes[REPORT][0]);
    }
    close(pipes[REPORT][0]);
    if (reason != 0) {
        close_all(ours, 3);
        if (pid > 0)
            waitpid(pid, NULL, 0);
        return fail_start(words[0], reason, error);
    }
    for (int i = 0; i < 3; i++)
        fcntl(ours[i], F_SETFL, fcntl(ours[i], F_GETFL) | O_NONBLOCK);
    *process = (struct process){
        .pid = pid, .input = ours[0], .output = ours[1], .messages = ours[2]};
    return SKR_OK;
}

// Runs words[0], found in PATH, without any shell. words ends with NULL, and so
// does withheld: variables of our environment that are not passed on. The
// process leads a group of its own, so that what it starts ends with it, and is
// killed when this thread ends. Our ends of the pipes do not block.
// SKR_UNAVAILABLE, with SKR_TRY_AGAIN: it could not be started.
static enum skr_code
start_process(struct process *process, char *const *words,
              const char *const *withheld, struct skr_error *error)
{
    char **environment = make_environment(withheld);
    if (environment == NULL)
        return skr_fail_memory(error);
    enum skr_code code = spawn(process, words, environment, error);
    free(environment);
    return code;
}

// As write(), but a reader that is gone raises no signal in this process.
static ssize_t
write_to_process(const struct process *process, const void *bytes, size_t size)
{
    sigset_t pipe_only, before, pending;
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe_only, &before);
    ssize_t written = write(process->input, bytes, size);
    int reason = errno;
    // One of our own making is taken away; one that waited before stays.
    if (written < 0 && reason == EPIPE && !sigismember(&pending, SIGPIPE))
        sigtimedwait(&pipe_only, NULL, &(struct timespec){0});
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = reason;
    return written;
}

// Looks without taking the number away: the group is named by it until its
// last member is killed.
static bool
has_ended(pid_t pid)
{
    siginfo_t info = {0};
    int flags = WEXITED | WNOHANG | WNOWAIT;
    return waitid(P_PID, (id_t)pid, &info, flags) != 0 || info.si_pid == pid;
}

static void
describe(int status, bool was_killed, char how[ENDING_SIZE])
{
    if (was_killed)
        snprintf(how, ENDING_SIZE, "it was killed");
    else if (WIFSIGNALED(status))
        snprintf(how, ENDING_SIZE, "signal %d", WTERMSIG(status));
    else
        snprintf(how, ENDING_SIZE, "exit code %d", WEXITSTATUS(status));
}

// Closes the pipes, waits so long for its end and then kills the group. how
// tells what became of it: "exit code 3", "signal 9".
static void
end_process(struct process *process, int64_t patience_ms, char how[ENDING_SIZE])
{
    int status = 0;
    int files[] = {process->input, process->output, process->messages};
    how[0] = '\0';
    if (process->pid == 0)
        return;
    close_all(files, 3);
    int64_t end_ms = skr_clock_ms() + patience_ms;
    while (!has_ended(process->pid) && skr_clock_ms() < end_ms)
        skr_clock_sleep(-1, LOOK_AGAIN_MS);
    bool was_killed = !has_ended(process->pid);
    kill(-process->pid, SIGKILL);
    waitpid(process->pid, &status, 0);
    describe(status, was_killed, how);
    *process = (struct process){0};
}

// Its standard error goes to the log, line by line. What is too long for one
// goes on in the next, and what is too much is only counted.
struct child_errors {
    char line[300];
    size_t size;
    uint32_t logged;   // lines, since the last message was handed over
    uint64_t dropped;  // bytes that were not logged
};

struct skr_child {
    const struct skr_consumer *consumer;
    struct skr_arena texts;  // for the next three
    const char *message_name;
    char **words;     // of the command: the program, its arguments; ends with
                      // NULL
    char **withheld;  // variables of the environment that it does not get; the
                      // same
    uint32_t timeout_ms;           // for an answer, and for getting ready
    enum skr_recorder configured;  // of a process that does not say
    enum skr_recorder recorder;    // of this process, or the last
    struct process process;
    char ending[ENDING_SIZE];  // of the last process, see end_process()
    bool has_answered;         // this process
    bool has_told_withheld;    // see tell_withheld()
    uint64_t number;           // of the last message
    struct skr_backoff backoff;
    int64_t start_ms;  // not before this; by skr_clock_ms()

    struct skr_text output;  // what was read and is not yet a line
    struct child_errors errors;
};

static void
log_text(const struct skr_child *child, enum skr_log_level level,
         const char *event, const char *text)
{
    skr_log(&child->consumer->log, level, event,
            SKR_LOG_TEXT("name", child->consumer->options.name),
            SKR_LOG_TEXT("message", child->message_name),
            SKR_LOG_TEXT("text", text));
}

static void
log_line(struct skr_child *child)
{
    struct child_errors *errors = &child->errors;
    struct skr_error shown;
    if (errors->size == 0)
        return;
    if (errors->logged++ < MOST_LOGGED) {
        // Makes text of it whatever the bytes are.
        skr_fail(&shown, SKR_OK, SKR_GIVE_UP, "%.*s", (int)errors->size,
                 errors->line);
        log_text(child, SKR_LOG_WARNING, "child.stderr", shown.text);
    } else {
        errors->dropped += errors->size;
    }
    errors->size = 0;
}

// Reads what there is of its errors; closes the file at its end.
static void
hear(struct skr_child *child)
{
    struct child_errors *errors = &child->errors;
    int *file = &child->process.messages;
    char bytes[4096];
    ssize_t size;
    if (child->process.pid == 0)
        return;
    while ((size = read(*file, bytes, sizeof(bytes))) > 0)
        for (ssize_t i = 0; i < size; i++) {
            if (bytes[i] != '\n')
                errors->line[errors->size++] = bytes[i];
            if (bytes[i] == '\n' || errors->size == sizeof(errors->line))
                log_line(child);
        }
    if (size == 0) {
        // Closed, or a wait for more would end at once, again and again.
        close(*file);
        *file = -1;
    }
}

// A message is dealt with: logs what was not logged.
static void
end_hearing(struct skr_child *child)
{
    struct child_errors *errors = &child->errors;
    log_line(child);
    if (errors->dropped > 0)
        skr_log(&child->consumer->log, SKR_LOG_WARNING, "child.stderr_dropped",
                SKR_LOG_TEXT("name", child->consumer->options.name),
                SKR_LOG_TEXT("message", child->message_name),
                SKR_LOG_NUMBER("bytes", errors->dropped));
    errors->dropped = 0;
    errors->logged = 0;
}

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

// Logs the last of its errors first.
static void
end_child(struct skr_child *child, int64_t patience_ms)
{
    hear(child);
    end_hearing(child);
    end_process(&child->process, patience_ms, child->ending);
    skr_text_clear(&child->output);
}

// Ends the process after a failure; the next one starts after a pause that
// grows until one of them answers.
static void
drop(struct skr_child *child, int64_t patience_ms)
{
    end_child(child, patience_ms);
    child->start_ms = skr_clock_ms() + skr_backoff_next(&child->backoff);
}

void
skr_child_end(struct skr_child *child)
{
    if (child != NULL && child->process.pid != 0)
        end_child(child, ENDING_MS);
}

bool
skr_child_records(const struct skr_child *child)
{
    return child != NULL && child->recorder == SKR_RECORDER_HANDLER;
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

static void
drop_line(struct skr_child *child)
{
    size_t size = line_size(child);
    child->output.size -= size;
    memmove(child->output.bytes, child->output.bytes + size,
            child->output.size);
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
    ssize_t size = write_to_process(&child->process, line->bytes + *sent,
                                    line->size - *sent);
    if (size > 0)
        *sent += (size_t)size;
    return size >= 0 || errno == EAGAIN || errno == EINTR;
}

// Writes a line, which may be empty, and reads one.
static enum said
talk(struct skr_child *child, const struct skr_text *line)
{
    int64_t end_ms = skr_clock_ms() + child->timeout_ms;
    int wake_fd = child->consumer->stop_fd;
    bool is_cut_short = false;
    size_t sent = 0;
    for (;;) {
        struct process *process = &child->process;
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
    drop(child, DYING_MS);
    bool is_fine = strcmp(child->ending, "exit code 0") == 0;
    if (is_fine)
        child->start_ms = 0;
    log_text(child, is_fine ? SKR_LOG_INFO : SKR_LOG_WARNING, "child.ended",
             child->ending);
}

// Between two messages: nothing is to be heard, and it is there.
static bool
is_quiet(struct skr_child *child)
{
    hear(child);
    bool is_open = read_output(child);
    if (is_open && child->output.size == 0)
        return true;
    if (child->output.size == 0) {
        bury(child);
        return false;
    }
    drop(child, 0);
    log_text(child, SKR_LOG_WARNING, "child.ended",
             "it wrote a line that nobody asked for, and was killed");
    return false;
}

// Why no {"ready":true} came.
static void
describe_silence(struct skr_child *child, enum said said,
                 struct skr_error *shown)
{
    int size = (int)line_size(child) - 1;
    if (said == SAID_LINE)
        skr_fail(shown, SKR_OK, SKR_GIVE_UP, "its first line is \"%.*s\"",
                 size > 100 ? 100 : size, child->output.bytes);
    drop(child, said == SAID_END ? DYING_MS : 0);
    if (said == SAID_NOTHING)
        skr_fail(shown, SKR_OK, SKR_GIVE_UP,
                 "it wrote no line within %u s (timeout) and was killed",
                 (unsigned)(child->timeout_ms / 1000));
    else if (said != SAID_LINE)
        skr_fail(shown, SKR_OK, SKR_GIVE_UP, "it ended with %s", child->ending);
}

static enum skr_code
fail_ready(struct skr_child *child, enum said said, struct skr_error *error)
{
    struct skr_error shown = {0};
    describe_silence(child, said, &shown);
    if (said == SAID_TOO_LATE)
        return skr_fail(error, SKR_STOPPED, SKR_TRY_AGAIN,
                        "stop was requested");
    return skr_fail(error, SKR_UNAVAILABLE, SKR_TRY_AGAIN,
                    "the command of %.100s did not say {\"ready\":true}: %s; "
                    "skirnir-handler(7) tells what a command says",
                    child->message_name, shown.text);
}

static enum skr_code
start(struct skr_child *child, struct skr_error *error)
{
    static const struct skr_text nothing;
    struct skr_arena arena = {0};
    int64_t wait_ms = child->start_ms - skr_clock_ms();
    if (wait_ms > 0 && skr_clock_sleep(child->consumer->stop_fd, wait_ms))
        return skr_fail(error, SKR_STOPPED, SKR_TRY_AGAIN,
                        "stop was requested");
    enum skr_code code =
        start_process(&child->process, child->words,
                      (const char *const *)child->withheld, error);
    child->has_answered = false;
    if (code != SKR_OK) {
        drop(child, 0);
        return code;
    }
    enum said said = talk(child, &nothing);
    child->recorder = child->configured;
    bool is_ready =
        said == SAID_LINE &&
        skr_child_is_ready_line(child->output.bytes, line_size(child), &arena,
                                &child->recorder);
    skr_arena_fini(&arena);
    if (!is_ready)
        return fail_ready(child, said, error);
    // What stands behind it is found to be too much by is_quiet().
    drop_line(child);
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
                    child->message_name);
}

static enum skr_verdict
fail_talk(struct skr_child *child, enum said said, struct skr_error *reason)
{
    const char *name = child->message_name;
    drop(child, said == SAID_END ? DYING_MS : 0);
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
                 name, (unsigned)(child->timeout_ms / 1000));
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
                 child->ending);
        break;
    }
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
    enum skr_verdict verdict = SKR_RETRY;
    enum skr_code code = skr_child_read_answer(
        child->output.bytes, line_size(child), &arena, &answer, &problem);
    if (code != SKR_OK) {
        drop(child, 0);
        skr_fail(reason, SKR_MALFORMED, SKR_GIVE_UP,
                 "the command of %.100s gave an answer that is none: %s",
                 child->message_name, problem.text);
    } else if (answer.number != child->number) {
        drop(child, 0);
        skr_fail(reason, SKR_UNAVAILABLE, SKR_TRY_AGAIN,
                 "the command of %.100s answered another message than it was "
                 "given",
                 child->message_name);
    } else {
        verdict = answer.verdict;
        const char *says = answer.error;
        if (says == NULL)
            says = answer.waits ? "the command asks to wait" : "";
        // As of a handler whose table is locked: no message is to blame.
        skr_fail(reason, answer.waits ? SKR_TIMEOUT : SKR_REFUSED,
                 answer.waits ? SKR_TRY_AGAIN : SKR_GIVE_UP, "%.250s", says);
        drop_line(child);
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

// A command that has failed may want what it did not get.
static void
tell_withheld(struct skr_child *child)
{
    struct skr_text names = {0};
    for (char **name = child->withheld; *name != NULL; name++)
        if (!child->has_told_withheld && getenv(*name) != NULL)
            skr_text_add_format(&names, "%s%s", names.size > 0 ? ", " : "",
                                *name);
    if (names.size > 0)
        skr_log(&child->consumer->log, SKR_LOG_INFO, "child.withheld",
                SKR_LOG_TEXT("name", child->consumer->options.name),
                SKR_LOG_TEXT("message", child->message_name),
                SKR_LOG_TEXT("variables", names.bytes),
                SKR_LOG_TEXT("advice",
                             "the configuration names these variables, so the "
                             "command did not get them; if it needs one, write "
                             "it into env of its handler"));
    skr_text_fini(&names);
    child->has_told_withheld = true;
}

// SKR_RETRY with the remedy SKR_TRY_AGAIN in reason: no process could be had, a
// stop left it too little time, or it asks to wait; the message is not to
// blame. With any other, the process that had the message died, hung or did not
// keep to the protocol.
static enum skr_verdict
handle(const struct skr_delivery *delivery, struct skr_tx tx, void *user,
       struct skr_error *reason)
{
    struct skr_child *child = user;
    const struct skr_consumer *consumer = child->consumer;
    const char *class_name =
        skr_names_find_class(consumer->extras.names, delivery->message.name);
    const struct skr_record_place record = {
        .table = consumer->options.deduplication_table,
        .name = class_name == NULL ? delivery->message.name : class_name,
    };
    struct skr_text line = {0};
    enum said said = SAID_NOTHING;
    (void)tx;
    if (skr_child_write_line(delivery, &record, ++child->number, &line,
                             reason) != SKR_OK) {
        reason->remedy = SKR_TRY_AGAIN;
        return SKR_RETRY;
    }
    enum skr_code code = ask(child, &line, &said, reason);
    skr_text_fini(&line);
    enum skr_verdict verdict = SKR_RETRY;
    if (code == SKR_OK)
        verdict = said == SAID_LINE ? judge(child, reason)
                                    : fail_talk(child, said, reason);
    if (verdict != SKR_ACCEPT)
        tell_withheld(child);
    if (code != SKR_OK)
        return SKR_RETRY;
    hear(child);
    end_hearing(child);
    return verdict;
}

// Starts nothing yet, but looks for the program.
enum skr_code
skr_consumer_handle_command(struct skr_consumer *consumer,
                            const char *message_name,
                            const struct skr_handler_command *command,
                            struct skr_error *error)
{
    size_t withheld_count = 0;
    if (command->word_count == 0)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "a command needs at least the name of a program");
    enum skr_code code = skr_process_check(command->words[0], error);
    if (code != SKR_OK)
        return code;
    struct skr_child *child = calloc(1, sizeof(*child));
    if (child == NULL)
        return skr_fail_memory(error);
    while (command->withheld[withheld_count] != NULL)
        withheld_count++;
    child->consumer = consumer;
    child->timeout_ms = command->timeout_ms;
    child->configured = command->recorder;
    child->recorder = command->recorder;
    child->backoff = (struct skr_backoff){.first_ms = 100, .longest_ms = 5000};
    child->words =
        copy_texts(&child->texts, command->words, command->word_count);
    child->withheld =
        copy_texts(&child->texts, command->withheld, withheld_count);
    child->message_name =
        skr_arena_text(&child->texts, message_name, strlen(message_name));
    const struct handler added = {
        .run = handle, .user = child, .child = child, .wants_no_tx = true};
    if (child->words == NULL || child->withheld == NULL ||
        child->message_name == NULL)
        code = skr_fail_memory(error);
    else
        code =
            skr_handlers_add(&consumer->handlers, message_name, &added, error);
    if (code != SKR_OK)
        skr_child_free(child);
    return code;
}
