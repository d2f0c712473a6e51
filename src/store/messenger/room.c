// SPDX-License-Identifier: MIT
// How many rows may be asked for. A server sends whole rows, as many as it was
// asked for, and a client library takes them in before the reader can say that
// it is enough. So the reader keeps in mind how large rows were lately, and
// asks for no more than there is room for.

#include "store/messenger/layout.h"

enum { ROWS_AT_FIRST = 8 };

size_t
skr_messenger_room(const struct skr_read *read, const struct skr_batch *batch)
{
    return read->max_bytes > batch->bytes ? read->max_bytes - batch->bytes : 0;
}

size_t
skr_messenger_rows_for(const struct skr_position *position, size_t room)
{
    return position->row_size == 0 ? ROWS_AT_FIRST : room / position->row_size;
}

// Larger rows count at once; that they are smaller again has to be seen a few
// times.
void
skr_messenger_note_sizes(struct skr_position *position, size_t rows,
                         size_t bytes)
{
    if (rows == 0)
        return;
    size_t size = bytes / rows + 1;
    if (size < position->row_size)
        size = (size + position->row_size) / 2;
    position->row_size = size;
}
