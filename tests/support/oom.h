// SPDX-License-Identifier: MIT
// Fails the nth allocation of the code under test and counts what it holds.
//
// The program is linked with -Wl,--wrap for the functions in oom.c, which
// catches every call from our own objects. One thread.

#ifndef SKR_TESTS_OOM_H
#define SKR_TESTS_OOM_H

#include <stdbool.h>
#include <stddef.h>

// The nth allocation from now on fails, once; 1 is the next one.
void skr_oom_arm(size_t nth);
// Whether it has failed. No allocation fails after this.
bool skr_oom_disarm(void);

// Allocations that have not been freed.
size_t skr_oom_live(void);

#endif
