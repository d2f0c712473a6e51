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
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { POLL_MS = 20, ATTEND_TRIES = 10, HOLDER_TRIES = 3 };

// NULL: memory is out. The caller frees it.
static char *
path_of(const struct skr_sqlite *sqlite, const char *name)
{
    char *path = NULL;
    return asprintf(&path, "%s-%s.lock", sqlite->path, name) < 0 ? NULL : path;
}

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

// These locks end with the open file as well.
static int
lock_byte(int fd, int command, short type, off_t at, struct flock *lock)
{
    *lock = (struct flock){
        .l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
    return fcntl(fd, command, lock);
}

// Bytes are named by the modes.
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
sqlite_try_lock(struct skr_db *db, struct skr_lock_attempt *attempt,
                struct skr_error *error)
{
    struct skr_sqlite *sqlite = (struct skr_sqlite *)db;
    const char *name = attempt->name;
    if (name[0] == '\0' || strchr(name, '/') != NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "%s: a lock needs a name without slashes", name);
    char *path = path_of(sqlite, name);
    if (path == NULL)
        return skr_fail_memory(error);
    enum skr_code code =
        try_lock(path, sqlite->path, attempt->mode, &sqlite->lock_fd, error);
    int64_t left_ms = attempt->end_ms - skr_clock_ms();
    attempt->pause_ms = left_ms < POLL_MS ? left_ms : POLL_MS;
    attempt->granted = sqlite->lock_fd >= 0;
    if (attempt->granted)
        sqlite->lock_path = path;
    else
        free(path);
    return code;
}

static enum skr_code
sqlite_check_lock(struct skr_db *db, struct skr_error *error)
{
    struct skr_sqlite *sqlite = (struct skr_sqlite *)db;
    if (is_file_at(sqlite->lock_fd, sqlite->lock_path))
        return SKR_OK;
    return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                    "the lock file %s was deleted or replaced: another may "
                    "hold the lock now",
                    sqlite->lock_path);
}

static void
sqlite_unlock(struct skr_db *db)
{
    struct skr_sqlite *sqlite = (struct skr_sqlite *)db;
    // Closing alone would not do if a child process has the file open too.
    flock(sqlite->lock_fd, LOCK_UN);
    close(sqlite->lock_fd);
    sqlite->lock_fd = -1;
    free(sqlite->lock_path);
    sqlite->lock_path = NULL;
}

// The kernel lists who has which file locked; a process of another container
// has the number 0 there. The list is read in parts, and one that others change
// meanwhile may lack an entry: what is not found is looked for again. Negative:
// it is free, or there is no list.
static long
find_holder(const char *path)
{
    char line[160];
    struct stat status;
    long holder = -1;
    for (int tries_left = HOLDER_TRIES; tries_left > 0 && holder < 0;
         tries_left--) {
        FILE *locks =
            stat(path, &status) == 0 ? fopen("/proc/locks", "re") : NULL;
        if (locks == NULL)
            return -1;
        while (fgets(line, sizeof(line), locks) != NULL) {
            char kind[16];
            long process;
            unsigned long long inode;
            if (sscanf(line, "%*s %15s %*s %*s %ld %*x:%*x:%llu", kind,
                       &process, &inode) == 3 &&
                strcmp(kind, "FLOCK") == 0 && inode == status.st_ino)
                holder = process;
        }
        fclose(locks);
    }
    return holder;
}

static enum skr_code
sqlite_holder(struct skr_db *db, const char *name, char holder[SKR_HOLDER_SIZE],
              struct skr_error *error)
{
    const struct skr_sqlite *sqlite = (struct skr_sqlite *)db;
    char *path = path_of(sqlite, name);
    holder[0] = '\0';
    if (path == NULL)
        return skr_fail_memory(error);
    long process = find_holder(path);
    free(path);
    if (process > 0)
        snprintf(holder, SKR_HOLDER_SIZE, "process %ld", process);
    else if (process == 0)
        snprintf(holder, SKR_HOLDER_SIZE, "a process");
    return SKR_OK;
}

// A connection that attends has a byte of the file locked, shared as reading is
// enough for that, at a place so random that no other has it.
static bool
take_place(int fd)
{
    uint32_t number;
    if (getrandom(&number, sizeof(number), 0) != sizeof(number))
        return false;
    struct flock lock;
    return lock_byte(fd, F_OFD_SETLK, F_RDLCK, (off_t)number, &lock) == 0;
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
        if (flock(fd, LOCK_SH | LOCK_NB) == 0 && is_file_at(fd, path) &&
            take_place(fd))
            return fd;
        close(fd);
        skr_clock_sleep(-1, 1);
    }
    return -1;
}

static enum skr_code
sqlite_attend(struct skr_db *db, const char *name, struct skr_error *error)
{
    struct skr_sqlite *sqlite = (struct skr_sqlite *)db;
    enum skr_code code = skr_sqlite_check_file(sqlite, error);
    if (code != SKR_OK || sqlite->attend_fd >= 0)
        return code;
    char *path = path_of(sqlite, name);
    if (path == NULL)
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

// How many bytes of [start, end) others have locked. The kernel names one of
// them, and not the first: the ranges before and after it are asked for too.
static int64_t
count_places(int fd, off_t start, off_t end)
{
    int64_t count = 0;
    while (start < end) {
        struct flock lock = {.l_type = F_WRLCK,
                             .l_whence = SEEK_SET,
                             .l_start = start,
                             .l_len = end - start};
        if (fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type == F_UNLCK)
            break;
        count += 1 + count_places(fd, start, lock.l_start);
        start = lock.l_start + lock.l_len;
    }
    return count;
}

static enum skr_code
sqlite_attendance(struct skr_db *db, const char *name, int64_t *count,
                  struct skr_error *error)
{
    const struct skr_sqlite *sqlite = (struct skr_sqlite *)db;
    char *path = path_of(sqlite, name);
    if (path == NULL)
        return skr_fail_memory(error);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool is_nobody = fd < 0 && errno == ENOENT;
    free(path);
    *count = is_nobody ? 0 : -1;
    if (fd < 0)
        return SKR_OK;
    *count = count_places(fd, 0, (off_t)UINT32_MAX + 1);
    close(fd);
    return SKR_OK;
}

const struct skr_lock_ops skr_sqlite_locks = {
    .shared_tries = 1,
    .try_lock = sqlite_try_lock,
    .check = sqlite_check_lock,
    .unlock = sqlite_unlock,
    .holder = sqlite_holder,
    .attend = sqlite_attend,
    .attendance = sqlite_attendance,
};
