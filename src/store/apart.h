// SPDX-License-Identifier: MIT
// Settling a batch of which the database refuses a row for good: by a trigger,
// a foreign key or a CHECK, or since the row is too large to be written. The
// batch is halved until that row is alone, so that it holds up no other.

#ifndef SKR_STORE_APART_H
#define SKR_STORE_APART_H

#include "store/batch.h"

// Of no row: it is in the range of every integer column, and no table gives it.
#define SKR_NO_ROW INT32_MIN

// Writes the result of every item of the batch that skr_is_written_now(), all
// or none, and those of a row that is not there without an error.
typedef enum skr_code skr_apart_write_fn(void *user, struct skr_batch *batch,
                                         struct skr_error *error);

// After they were refused together: settles every item that is SKR_WRITE_WHOLE,
// what is done before all else. Each is SKR_WRITE_DONE in the end, or
// SKR_WRITE_REFUSED; those that could not be written whole say why in their
// refusal.
//
// Fails, and has written nothing, when the refusal is not about single rows:
// the same statements are refused for no row at all. Fails too with whatever
// has another remedy than to give up. Then it may be called again: what is
// written is not written twice.
SKR_MUST_CHECK enum skr_code
skr_apart_settle(struct skr_batch *batch, skr_apart_write_fn *write, void *user,
                 struct skr_error *error);

#endif
