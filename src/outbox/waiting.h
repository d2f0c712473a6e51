// SPDX-License-Identifier: MIT
// Rows that were read and wait in their table, at a closed gate. A look for
// rows that committed late would find them again and again, and never get past
// them: it is told which they are.

#ifndef SKR_OUTBOX_WAITING_H
#define SKR_OUTBOX_WAITING_H

#include <stddef.h>
#include <stdint.h>

// In ascending order. Starts as zeroes.
struct skr_waiting {
    int64_t *rows;
    size_t count;
    size_t capacity;
};

// What finds no room is forgotten, and may be read again in vain; when there
// are very many, all that were told before are.
void skr_waiting_add(struct skr_waiting *waiting, int64_t row);
// Those up to this one are looked for no more.
void skr_waiting_forget(struct skr_waiting *waiting, int64_t up_to);
void skr_waiting_clear(struct skr_waiting *waiting);
void skr_waiting_fini(struct skr_waiting *waiting);

#endif
