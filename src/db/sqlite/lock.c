// SPDX-License-Identifier: MIT
// A lock is a file beside the database. It is never deleted: between its
// deletion and the next creation two holders could each lock one of their own.
//
// Holders that are together, or in shares, have the file locked shared, and
// beside that a byte of it that is their kind's. A new holder takes that first
// and then looks whether holders of the other kind are there: of two that come
// at once at least one sees the other.
//
// A holder that is stopped keeps it, and no other process becomes active
// meanwhile: safe, and without a server nothing could tell it from a slow one.

#include "db/sqlite/connection.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { POLL_MS = 20, ATTEND_TRIES = 10 };

static bool
is_file_at(int fd, const char *path)
{
    struct stat opened, named;
    return fstat(fd, &opened) == 0 && stat(path, &named) == 0 &&
           opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

static enum skr_code
fail_file(const char *path, struct skr_error *error)
{
    int native = errno;
    bool is_refused = native == EACCES || native == EPERM || native == EROFS;
    skr_fail(error, is_refused ? SKR_REFUSED : SKR_UNAVAILABLE, SKR_RECONNECT,
             "cannot lock %s: %s", path, strerror(native));
    skr_error_set_native(error, "%d", native);
    return is_refused ? SKR_REFUSED : SKR_UNAVAILABLE;
}

// Bytes are named by the modes. These locks end with the open file as well.
static int
lock_byte(int fd, int command, short type, enum skr_lock_mode mode,
          struct flock *lock)
{
    *lock = (struct flock){.l_type = type,
                           .l_whence = SEEK_SET,
                           .l_start = (off_t)mode,
                           .l_len = 1};
    return fcntl(fd, command, lock);
}

// *is_out: a holder of the other kind is there, or looks in.
static int
join_kind(int fd, enum skr_lock_mode mode, bool *is_out)
{
    struct flock lock;
    enum skr_lock_mode other =
        mode == SKR_LOCK_TOGETHER ? SKR_LOCK_IN_SHARES : SKR_LOCK_TOGETHER;
    *is_out = false;
    if (mode == SKR_LOCK_ALONE)
        return 0;
    int failed = lock_byte(fd, F_OFD_SETLK, F_RDLCK, mode, &lock);
    if (failed == 0)
        failed = lock_byte(fd, F_OFD_GETLK, F_WRLCK, other, &lock);
    *is_out = failed == 0 && lock.l_type != F_UNLCK;
    return failed;
}

// The users of the database can use the file, whatever the umask of the process
// that makes it: its mode, and its owner where this process may give it away.
// Reading is enough to lock, and it is not executable.
static int
make_file(const char *path, const char *database)
{
    struct stat status;
    if (stat(database, &status) != 0)
        return -1;
    mode_t mode = status.st_mode & 0666;
    int fd = open(path, O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0)
        return -1;
    // A process that may not give it to the owner may give it to the group. The
    // mode comes last: a change of owner may take some of it away.
    bool is_alike = fchown(fd, status.st_uid, status.st_gid) == 0 ||
                    fchown(fd, (uid_t)-1, status.st_gid) == 0;
    is_alike = fchmod(fd, mode) == 0 && is_alike;
    (void)is_alike;
    return fd;
}

static int
open_file(const char *path, const char *database)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        fd = make_file(path, database);
    if (fd < 0 && errno == EEXIST)
        fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd;
}

// *fd is negative when another has it. The file is opened anew each time, as
// the one that was there before may have been deleted.
static enum skr_code
try_lock(const char *path, const char *database, enum skr_lock_mode mode,
         int *fd, struct skr_error *error)
{
    *fd = -1;
    int opened = open_file(path, database);
    if (opened < 0)
        return fail_file(path, error);
    enum skr_code code = SKR_OK;
    int operation = mode == SKR_LOCK_ALONE ? LOCK_EX : LOCK_SH;
    bool is_out = false;
    if (flock(opened, operation | LOCK_NB) == 0 &&
        join_kind(opened, mode, &is_out) == 0) {
        if (!is_out && is_file_at(opened, path)) {
            *fd = opened;
            return SKR_OK;
        }
    } else if (errno != EWOULDBLOCK && errno != EINTR) {
        code = fail_file(path, error);
    }
    close(opened);
    return code;
}

static enum skr_code
wait_for_lock(const char *path, const char *database, enum skr_lock_mode mode,
              int wake_fd, uint32_t timeout_ms, int *fd,
              struct skr_error *error)
{
    int64_t end = skr_clock_ms() + timeout_ms;
    for (;;) {
        enum skr_code code = try_lock(path, database, mode, fd, error);
        if (code != SKR_OK || *fd >= 0)
            return code;
        int64_t left = end - skr_clock_ms();
        if (left <= 0 ||
            skr_clock_sleep(wake_fd, left < POLL_MS ? left : POLL_MS))
            return SKR_OK;
    }
}

enum skr_code
skr_sqlite_lock(struct skr_db *db, const char *name, enum skr_lock_mode mode,
                int wake_fd, uint32_t timeout_ms, bool *granted,
                struct skr_error *error)
{
    struct skr_sqlite *sqlite = (struct skr_sqlite *)db;
    if (sqlite->lock_fd >= 0)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "this connection holds the lock %s already",
                        sqlite->lock_path);
    if (name[0] == '\0' || strchr(name, '/') != NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "%s: a lock needs a name without slashes", name);
    char *path = NULL;
    if (asprintf(&path, "%s-%s.lock", sqlite->path, name) < 0)
        return skr_fail_memory(error);
    int fd = -1;
    enum skr_code code = wait_for_lock(path, sqlite->path, mode, wake_fd,
                                       timeout_ms, &fd, error);
    if (code != SKR_OK || fd < 0) {
        free(path);
        if (code == SKR_OK)
            *granted = false;
        return code;
    }
    sqlite->lock_fd = fd;
    sqlite->lock_path = path;
    *granted = true;
    return SKR_OK;
}

enum skr_code
skr_sqlite_check_lock(struct skr_db *db, struct skr_error *error)
{
    struct skr_sqlite *sqlite = (struct skr_sqlite *)db;
    if (sqlite->lock_fd < 0)
        return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                        "no lock is held on %s", sqlite->path);
    if (is_file_at(sqlite->lock_fd, sqlite->lock_path))
        return SKR_OK;
    return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                    "the lock file %s was deleted or replaced: another may "
                    "hold the lock now",
                    sqlite->lock_path);
}

void
skr_sqlite_unlock(struct skr_db *db)
{
    struct skr_sqlite *sqlite = (struct skr_sqlite *)db;
    if (sqlite->lock_fd < 0)
        return;
    // Closing alone would not do if a child process has the file open too.
    flock(sqlite->lock_fd, LOCK_UN);
    close(sqlite->lock_fd);
    sqlite->lock_fd = -1;
    free(sqlite->lock_path);
    sqlite->lock_path = NULL;
}

// The kernel lists who has which file locked; a process of another container
// has the number 0 there. Gives how many have this one; negative: there is no
// list. *process is one of them.
static int64_t
count_locks(const char *path, long *process)
{
    char line[160];
    int64_t count = 0;
    struct stat status;
    *process = -1;
    if (stat(path, &status) != 0)
        return 0;
    FILE *locks = fopen("/proc/locks", "re");
    if (locks == NULL)
        return -1;
    while (fgets(line, sizeof(line), locks) != NULL) {
        char kind[16];
        long found;
        unsigned long long inode;
        if (sscanf(line, "%*s %15s %*s %*s %ld %*x:%*x:%llu", kind, &found,
                   &inode) != 3 ||
            strcmp(kind, "FLOCK") != 0 || inode != status.st_ino)
            continue;
        *process = found;
        count++;
    }
    fclose(locks);
    return count;
}

enum skr_code
skr_sqlite_holder(struct skr_db *db, const char *name,
                  char holder[SKR_HOLDER_SIZE], struct skr_error *error)
{
    const struct skr_sqlite *sqlite = (struct skr_sqlite *)db;
    char *path = NULL;
    long process = -1;
    holder[0] = '\0';
    if (asprintf(&path, "%s-%s.lock", sqlite->path, name) < 0)
        return skr_fail_memory(error);
    count_locks(path, &process);
    free(path);
    if (process > 0)
        snprintf(holder, SKR_HOLDER_SIZE, "process %ld", process);
    else if (process == 0)
        snprintf(holder, SKR_HOLDER_SIZE, "a process");
    return SKR_OK;
}

// The last one to leave removes the file: one that is opened meanwhile may be
// gone once it is locked. Negative where it cannot be made.
static int
open_attended(const char *path, const char *database)
{
    for (int tries_left = ATTEND_TRIES; tries_left > 0; tries_left--) {
        int fd = open_file(path, database);
        if (fd < 0)
            return -1;
        if (flock(fd, LOCK_SH | LOCK_NB) == 0 && is_file_at(fd, path))
            return fd;
        close(fd);
        skr_clock_sleep(-1, 1);
    }
    return -1;
}

enum skr_code
skr_sqlite_attend(struct skr_db *db, const char *name, struct skr_error *error)
{
    struct skr_sqlite *sqlite = (struct skr_sqlite *)db;
    enum skr_code code = skr_sqlite_check_file(sqlite, error);
    if (code != SKR_OK || sqlite->attend_fd >= 0)
        return code;
    char *path = NULL;
    if (asprintf(&path, "%s-%s.lock", sqlite->path, name) < 0)
        return skr_fail_memory(error);
    sqlite->attend_fd = open_attended(path, sqlite->path);
    if (sqlite->attend_fd >= 0)
        sqlite->attend_path = path;
    else
        free(path);
    return SKR_OK;
}

void
skr_sqlite_leave(struct skr_sqlite *sqlite)
{
    if (sqlite->attend_fd < 0)
        return;
    if (flock(sqlite->attend_fd, LOCK_EX | LOCK_NB) == 0 &&
        is_file_at(sqlite->attend_fd, sqlite->attend_path))
        unlink(sqlite->attend_path);
    close(sqlite->attend_fd);
    free(sqlite->attend_path);
    sqlite->attend_fd = -1;
    sqlite->attend_path = NULL;
}

enum skr_code
skr_sqlite_attendance(struct skr_db *db, const char *name, int64_t *count,
                      struct skr_error *error)
{
    const struct skr_sqlite *sqlite = (struct skr_sqlite *)db;
    char *path = NULL;
    long process = -1;
    if (asprintf(&path, "%s-%s.lock", sqlite->path, name) < 0)
        return skr_fail_memory(error);
    *count = count_locks(path, &process);
    free(path);
    return SKR_OK;
}
