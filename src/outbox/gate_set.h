// SPDX-License-Identifier: MIT
// Where gates are kept: senders in a list, all others in a hash table that
// forgets those that nobody needs any more.

#ifndef SKR_OUTBOX_GATE_SET_H
#define SKR_OUTBOX_GATE_SET_H

#include "outbox/gates.h"

// NULL: there is none.
struct skr_gate *
skr_gates_find(struct skr_gates *gates, enum skr_gate_kind kind,
               const struct skr_passage *passage);
// What finds no room waits further outside; senders always do. Others may be
// forgotten by this.
struct skr_gate *
skr_gates_find_or_make(struct skr_gates *gates, enum skr_gate_kind kind,
                       const struct skr_passage *passage);
// For walking through all of them; *at starts as 0. NULL: there is no more.
struct skr_gate *skr_gates_next(struct skr_gates *gates, size_t *at);

#endif
