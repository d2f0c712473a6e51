// SPDX-License-Identifier: MIT
// Rows whose decision the database refuses to write. Each is told once. One
// that is published is settled again now and then, and not sent again; any
// other is left alone for a while and then read like any row.

#ifndef SKR_RELAY_PARKING_H
#define SKR_RELAY_PARKING_H

#include "base/backoff.h"
#include "relay/ownership.h"
#include "relay/settler.h"
#include "store/parked.h"

enum { SKR_MOST_AGAIN = 64 };  // parked rows that are settled together

struct skr_parking {
    const char *name;  // the relay's, for logs
    const struct skr_log *log;
    uint32_t park_ms;  // how often a parked row is tried again
    struct skr_parked parked;
    uint64_t server;  // that the rows are of

    struct skr_job again;  // published rows that are tried once more
    struct skr_parked_row again_rows[SKR_MOST_AGAIN];
    bool is_settling;  // that job
    int64_t again_ms;  // not before, beside batches

    // Jobs whose refused rows find no room here, to be settled once more.
    struct skr_job *waiting;
    int64_t waiting_ms;  // when
    struct skr_backoff waiting_backoff;
    size_t put_off;              // jobs that wait, or are being settled again
    struct skr_trouble trouble;  // that there is no room
};

SKR_MUST_CHECK enum skr_code
skr_parking_init(struct skr_parking *parking, struct skr_error *error);
void skr_parking_fini(struct skr_parking *parking);
// Rows of this server are read from now on: those of another are forgotten.
void skr_parking_work_on(struct skr_parking *parking, uint64_t server);

// A job comes back from the settler. Parks the rows that were refused and takes
// out those that no longer are. False: there is no room, and the job stays here
// until it is to be settled once more.
bool skr_parking_take(struct skr_parking *parking, struct skr_job *job);

// A job for the settler whose time has come, or NULL. is_settling: batches wait
// for it, too, and have the larger part of its time.
struct skr_job *
skr_parking_next_job(struct skr_parking *parking,
                     const struct skr_ownership *ownership, bool is_settling);
// Whether the job is one of parked rows; then it has come back.
bool
skr_parking_is_again(struct skr_parking *parking, const struct skr_job *job);

// When the next one is due; 0: never.
int64_t skr_parking_next_job_ms(const struct skr_parking *parking,
                                const struct skr_ownership *ownership,
                                bool is_settling);

// Whether rows may be read from now on that were not, and when the next may be;
// 0: none waits for its time.
bool skr_parking_release(struct skr_parking *parking);
int64_t skr_parking_release_ms(const struct skr_parking *parking);
// Whether a batch waits here to be settled once more.
bool skr_parking_has_waiting(const struct skr_parking *parking);

#endif
