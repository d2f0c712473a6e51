// SPDX-License-Identifier: MIT
// A ceiling over what a test may take: input that is no good is no reason to
// grow. The programs of the integration tests have one, too: limit_memory().

#ifndef SKR_TESTS_MEMORY_CEILING_H
#define SKR_TESTS_MEMORY_CEILING_H

#include <stddef.h>
#include <stdlib.h>
#include <sys/resource.h>

// For messages of little size: the program, the stacks of its threads and what
// these have in flight.
#define SKR_TEST_CEILING_MIB 160

// From now on this process and its children get no more than this, the stacks
// of their threads included. A program that is instrumented takes more, and has
// no limit.
static inline void
skr_test_limit_memory(size_t most_mib)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    const struct rlimit most = {most_mib << 20, most_mib << 20};
    if (setrlimit(RLIMIT_DATA, &most) != 0)
        abort();
#else
    (void)most_mib;
#endif
}

#endif
