// SPDX-License-Identifier: MIT
// What every fuzz_*.c defines. It returns 0, and aborts on a broken promise.

#ifndef SKR_TESTS_FUZZ_H
#define SKR_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

#endif
