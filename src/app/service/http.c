// SPDX-License-Identifier: MIT
// The HTTP server on libmicrohttpd; http_none.c takes its place in a build
// without that library.

#include "app/service/http.h"

#include "base/error.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

// Where more than KEPT connections are open the oldest goes. The library takes
// more than that, in each of its threads: it would refuse the newest, and a
// probe could be kept out by those that say nothing.
enum { TIMEOUT_S = 10, KEPT = 128, THREADS = 2 };
enum { MOST_CONNECTIONS = 2 * KEPT * THREADS };

struct skr_http {
    skr_http_answer_fn *answer;
    void *user;
    struct MHD_Daemon *daemon;
    pthread_mutex_t lock;           // of all below
    int sockets[MOST_CONNECTIONS];  // of open connections, the oldest first
    size_t socket_count;
    size_t ending;  // so many of the first are told to end
};

static void
remove_socket(struct skr_http *http, int fd)
{
    size_t at = 0;
    while (at < http->socket_count && http->sockets[at] != fd)
        at++;
    if (at == http->socket_count)
        return;
    http->socket_count--;
    http->ending -= at < http->ending;
    memmove(http->sockets + at, http->sockets + at + 1,
            (http->socket_count - at) * sizeof(http->sockets[0]));
}

// A socket is removed before the library closes it: its number is not yet that
// of something else.
static void
note_connection(void *user, struct MHD_Connection *connection, void **state,
                enum MHD_ConnectionNotificationCode what)
{
    struct skr_http *http = user;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    (void)state;
    if (info == NULL)
        return;
    pthread_mutex_lock(&http->lock);
    if (what == MHD_CONNECTION_NOTIFY_CLOSED)
        remove_socket(http, info->connect_fd);
    else if (http->socket_count < MOST_CONNECTIONS)
        http->sockets[http->socket_count++] = info->connect_fd;
    while (http->socket_count - http->ending > KEPT)
        shutdown(http->sockets[http->ending++], SHUT_RDWR);
    pthread_mutex_unlock(&http->lock);
}

static enum MHD_Result
respond(struct MHD_Connection *connection, unsigned status, const char *type,
        struct skr_text *text)
{
    size_t size = text->size;
    char *bytes = skr_text_take(text);
    if (bytes == NULL)
        return MHD_NO;
    struct MHD_Response *response =
        MHD_create_response_from_buffer(size, bytes, MHD_RESPMEM_MUST_FREE);
    if (response == NULL) {
        free(bytes);
        return MHD_NO;
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result
answer(void *user, struct MHD_Connection *connection, const char *path,
       const char *method, const char *version, const char *upload,
       size_t *upload_size, void **state)
{
    const struct skr_http *http = user;
    const struct skr_http_request request = {.path = path,
                                             .connection = connection};
    struct skr_text text = {0};
    unsigned status = MHD_HTTP_METHOD_NOT_ALLOWED;
    const char *type = "text/plain; charset=utf-8";
    (void)version;
    (void)upload;
    (void)state;
    // What is sent along is of no interest.
    *upload_size = 0;
    if (strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0)
        status = http->answer(http->user, &request, &type, &text);
    else
        skr_text_add_string(&text, "only GET is answered\n");
    // An empty text has no bytes to hand over.
    if (text.size == 0)
        skr_text_add_string(&text, "\n");
    return respond(connection, status, type, &text);
}

// Either kind of address, with its port.
union address {
    struct sockaddr any;
    struct sockaddr_in ipv4;
    struct sockaddr_in6 ipv6;
};

static bool
read_address(const char *text, uint16_t port, union address *address)
{
    *address = (union address){
        .ipv6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)}};
    if (inet_pton(AF_INET6, text, &address->ipv6.sin6_addr) == 1)
        return true;
    *address = (union address){
        .ipv4 = {.sin_family = AF_INET, .sin_port = htons(port)}};
    return inet_pton(AF_INET, text, &address->ipv4.sin_addr) == 1;
}

// Its threads get no signals: signals are for the thread that stops workers.
static struct MHD_Daemon *
start_daemon(struct skr_http *http, const union address *address, bool is_dual)
{
    unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_AUTO;
    if (address->any.sa_family == AF_INET6)
        flags |= is_dual ? MHD_USE_DUAL_STACK : MHD_USE_IPv6;
    sigset_t all, saved;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved);
    errno = 0;
    struct MHD_Daemon *daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, answer, http, MHD_OPTION_SOCK_ADDR, address,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)TIMEOUT_S,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)MOST_CONNECTIONS,
        MHD_OPTION_THREAD_POOL_SIZE, (unsigned)THREADS,
        MHD_OPTION_NOTIFY_CONNECTION, note_connection, http, MHD_OPTION_END);
    int native = errno;
    pthread_sigmask(SIG_SETMASK, &saved, NULL);
    errno = native;
    return daemon;
}

static enum skr_code
start_on(struct skr_http *http, const struct skr_http_options *options,
         const char *text, struct skr_error *error)
{
    union address address;
    if (!read_address(text, options->port, &address))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "%s: '%.60s' is no address such as 127.0.0.1 or ::1",
                        options->setting, text);
    http->daemon = start_daemon(http, &address, options->address == NULL);
    if (http->daemon != NULL)
        return SKR_OK;
    int native = errno;
    return skr_fail(
        error, native == EADDRINUSE ? SKR_CONFLICT : SKR_REFUSED, SKR_GIVE_UP,
        "metrics cannot be served on %s port %u: %s; choose "
        "another by %s",
        text, options->port, native == 0 ? "refused" : strerror(native),
        options->setting);
}

static void
free_http(struct skr_http *http)
{
    pthread_mutex_destroy(&http->lock);
    free(http);
}

enum skr_code
skr_http_start(const struct skr_http_options *options, struct skr_http **http,
               struct skr_error *error)
{
    struct skr_http *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return skr_fail_memory(error);
    made->answer = options->answer;
    made->user = options->user;
    pthread_mutex_init(&made->lock, NULL);
    bool is_any = options->address == NULL;
    enum skr_code code =
        start_on(made, options, is_any ? "::" : options->address, error);
    // There are machines without IPv6.
    if (is_any && code != SKR_OK)
        code = start_on(made, options, "0.0.0.0", error);
    if (code != SKR_OK) {
        free_http(made);
        return code;
    }
    *http = made;
    return SKR_OK;
}

void
skr_http_stop(struct skr_http *http)
{
    if (http == NULL)
        return;
    MHD_stop_daemon(http->daemon);
    free_http(http);
}

const char *
skr_http_argument(const struct skr_http_request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection,
                                       MHD_GET_ARGUMENT_KIND, name);
}
