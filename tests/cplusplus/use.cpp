// SPDX-License-Identifier: MIT
// A C++ program against the shared libraries: it links only if every header
// says extern "C" and the libraries export what the headers promise.
#include <skirnir/queue.h>
#include <skirnir/relay.h>
#include <skirnir/skirnir.h>
#ifdef SKR_WITH_PGSQL
#include <skirnir/pgsql.h>
#endif
#ifdef SKR_WITH_SQLITE
#include <skirnir/sqlite.h>
#endif

#include <cstdio>
#include <cstring>

SKR_HANDLER_LIBRARY;

static bool
ids_survive_their_text_form()
{
    skr_error error;
    skr_id id, again;
    char text[SKR_ID_TEXT_SIZE];
    if (skr_id_new(&id, &error) != SKR_OK)
        return false;
    skr_id_format(id, text);
    return skr_id_parse(text, &again, &error) == SKR_OK &&
           std::memcmp(&id, &again, sizeof(id)) == 0;
}

int
main()
{
    if (std::strcmp(skr_version(), SKR_VERSION) != 0)
        return 1;
    if (!ids_survive_their_text_form())
        return 2;
    if (std::strcmp(skr_code_name(SKR_INVALID), "INVALID") != 0)
        return 3;
    if (skr_handler_abi != SKR_HANDLER_ABI)
        return 5;
    skr_outbox *outbox = nullptr;
    skr_error error;
    if (skr_outbox_new(nullptr, &outbox, &error) != SKR_OK)
        return 4;
    skr_outbox_free(outbox);
    skr_consumer_options options = {};
    options.broker = &skr_queue_broker;
    skr_consumer *consumer = nullptr;
    if (skr_consumer_open(&options, &consumer, &error) == SKR_OK)
        return 5;
    skr_relay *relay = nullptr;
    if (skr_relay_new(nullptr, &relay, &error) != SKR_INVALID)
        return 7;
    skr_relay_free(relay);
#ifdef SKR_WITH_SQLITE
    if (skr_sqlite_connection(skr_sqlite_tx(nullptr)) != nullptr)
        return 6;
#endif
#ifdef SKR_WITH_PGSQL
    if (skr_pgsql_connection(skr_pgsql_tx(nullptr)) != nullptr)
        return 8;
#endif
    std::puts("ok");
    return 0;
}
