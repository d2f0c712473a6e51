// SPDX-License-Identifier: MIT
// Parked rows: the database refuses for good what is to be written to them, so
// that they stay in the outbox as they are. One that is published is not sent
// again by this process. One that is not is left alone for a while and then
// read like any other, as what refused it may be mended by then.

#ifndef SKR_STORE_PARKED_H
#define SKR_STORE_PARKED_H

#include "store/identity.h"
#include "store/row_set.h"

enum {
    SKR_MOST_PARKED = 8192,
    // The rest is for those that are not published. A restart sends these
    // again: beyond this the relay waits.
    SKR_MOST_PARKED_PUBLISHED = 4096,
};

struct skr_parked_row {
    int64_t row;
    // As in struct skr_batch_item: a new row may get the id.
    char created_at[SKR_IDENTITY_SIZE];
    bool is_published;
    // When it is settled again if it is published, else read again, by
    // skr_clock_ms(). 0: it may be read, and is only known to have been told
    // of.
    int64_t until_ms;
};

// In ascending order. Starts as zeroes.
struct skr_parked {
    struct skr_parked_row *rows;
    size_t count, capacity;
    size_t published;
    bool has_freed;  // since the last release: see there
};

// Makes room for so many published rows. False: there is none.
bool skr_parked_reserve(struct skr_parked *parked, size_t published);
// True: the row was not known before. Of those that are not published one that
// finds no room is forgotten.
bool skr_parked_add(struct skr_parked *parked, struct skr_parked_row row);
bool skr_parked_knows(const struct skr_parked *parked, int64_t row);
// The row is settled after all. False: it was not known.
bool skr_parked_remove(struct skr_parked *parked, int64_t row);
// A new row has the id, and is to be read. False: it was not known.
bool skr_parked_replace(struct skr_parked *parked, int64_t row);

// Whether the row is not to be read; the others are only known.
bool skr_parked_is_left_alone(const struct skr_parked_row *row);
// How many are not to be read.
size_t skr_parked_count(const struct skr_parked *parked);

// Adds those to a set. False: memory is out.
bool skr_parked_list(const struct skr_parked *parked, struct skr_row_set *rows);

// Lists published rows whose time has come, so many at the most; their next
// time is next_ms.
size_t
skr_parked_take_due(struct skr_parked *parked, int64_t now_ms, int64_t next_ms,
                    struct skr_parked_row *rows, size_t most);
// No published row is due before that.
void skr_parked_defer(struct skr_parked *parked, int64_t next_ms);
// When the next of them is due; 0: there are none.
int64_t skr_parked_due_ms(const struct skr_parked *parked);

// Rows that are not published and whose time has come may be read from now on,
// those with the id of one that is gone, and those behind one that is settled.
// False: there are none.
bool skr_parked_release(struct skr_parked *parked, int64_t now_ms);
// When the next row may be read; 0: none waits for its time.
int64_t skr_parked_next_ms(const struct skr_parked *parked);
void skr_parked_clear(struct skr_parked *parked);
void skr_parked_fini(struct skr_parked *parked);

#endif
