// SPDX-License-Identifier: MIT
#include "oom.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void __real_free(void *old);

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t size);
void __wrap_free(void *old);

static size_t left;  // allocations until the one that fails; 0: not armed
static bool struck;
static size_t live;

void
skr_oom_arm(size_t nth)
{
    left = nth;
    struck = false;
}

bool
skr_oom_disarm(void)
{
    left = 0;
    return struck;
}

size_t
skr_oom_live(void)
{
    return live;
}

static bool
fails_now(void)
{
    if (left == 0 || --left > 0)
        return false;
    struck = true;
    errno = ENOMEM;
    return true;
}

static void *
counted(void *memory)
{
    if (memory != NULL)
        live++;
    return memory;
}

void *
__wrap_malloc(size_t size)
{
    return fails_now() ? NULL : counted(__real_malloc(size));
}

void *
__wrap_calloc(size_t count, size_t size)
{
    return fails_now() ? NULL : counted(__real_calloc(count, size));
}

void *
__wrap_realloc(void *old, size_t size)
{
    if (fails_now())
        return NULL;
    void *moved = __real_realloc(old, size);
    return old == NULL ? counted(moved) : moved;
}

char *
__wrap_strndup(const char *text, size_t size)
{
    size_t length = strnlen(text, size);
    char *copy = __wrap_malloc(length + 1);
    if (copy == NULL)
        return NULL;
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

char *
__wrap_strdup(const char *text)
{
    return __wrap_strndup(text, strlen(text));
}

void
__wrap_free(void *old)
{
    if (old != NULL)
        live--;
    __real_free(old);
}
