// SPDX-License-Identifier: MIT
// Starts, feeds and ends a handler's process. Between fork and exec only calls
// are made that are safe in a program with threads.

#include "inbox/child_process.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOOK_AGAIN_MS = 5 };

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

static bool
is_in(const char *folder, size_t size, const char *program)
{
    struct skr_text path = {0};
    skr_text_add(&path, folder, size);
    skr_text_add_format(&path, "%s%s", size == 0 ? "" : "/", program);
    bool found = !path.broken && is_runnable(path.bytes);
    skr_text_fini(&path);
    return found;
}

enum skr_code
skr_process_check(const char *program, struct skr_error *error)
{
    const char *at = getenv("PATH");
    if (strchr(program, '/') != NULL) {
        if (is_runnable(program))
            return SKR_OK;
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "cannot run %.200s: %s", program, strerror(errno));
    }
    while (at != NULL) {
        size_t size = strcspn(at, ":");
        if (is_in(at, size, program))
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
start(struct skr_process *process, char *const *words, char *const *environment,
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
    *process = (struct skr_process){
        .pid = pid, .input = ours[0], .output = ours[1], .messages = ours[2]};
    return SKR_OK;
}

enum skr_code
skr_process_start(struct skr_process *process, char *const *words,
                  const char *const *withheld, struct skr_error *error)
{
    char **environment = make_environment(withheld);
    if (environment == NULL)
        return skr_fail_memory(error);
    enum skr_code code = start(process, words, environment, error);
    free(environment);
    return code;
}

ssize_t
skr_process_write(const struct skr_process *process, const void *bytes,
                  size_t size)
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
describe(int status, bool was_killed, char how[SKR_ENDING_SIZE])
{
    if (was_killed)
        snprintf(how, SKR_ENDING_SIZE, "it was killed");
    else if (WIFSIGNALED(status))
        snprintf(how, SKR_ENDING_SIZE, "signal %d", WTERMSIG(status));
    else
        snprintf(how, SKR_ENDING_SIZE, "exit code %d", WEXITSTATUS(status));
}

void
skr_process_end(struct skr_process *process, int64_t patience_ms,
                char how[SKR_ENDING_SIZE])
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
    *process = (struct skr_process){0};
}
