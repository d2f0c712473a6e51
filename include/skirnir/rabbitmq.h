// SPDX-License-Identifier: MIT
// RabbitMQ as a broker. Link with skirnir-rabbitmq.

#ifndef SKIRNIR_RABBITMQ_H
#define SKIRNIR_RABBITMQ_H

#include <skirnir/skirnir.h>

#ifdef __cplusplus
extern "C" {
#endif

// URL: amqp://USER:PASSWORD@HOST:PORT/VHOST, or amqps:// for TLS. HOST may be a
// list, "a:5672,b:5672"; an empty VHOST is "/", and "/" in it is written %2f.
// Parameters, times in seconds: connect_timeout=10, heartbeat=30,
// confirm_timeout=30, connection_name, vhost, cacert, cert, key (PEM files) and
// verify=0, which trusts any server.
//
// To consume: queues=a,b (or queues[a]=, queue[name]=a); by default the queue
// of the exchange's name, else "messages". prefetch_count is how many messages
// the server may hand out ahead, over all queues; by default twice as many as
// are handled at once. prefetch_bytes=16777216 bounds what of them is held in
// memory: beyond it the server waits, though one message and one that is coming
// in have room whatever their size. auto_setup makes queues that are missing,
// by queues[a][arguments][x-queue-type]=quorum and the like, and binds them to
// exchange[name] by queues[a][binding_keys][0].
//
// A retry is the caller's business, unless retry_via=delay_queue: then a copy
// waits in a queue as Symfony makes it (delay[exchange_name],
// delay[queue_name_pattern], delay[arguments]), and the original is
// acknowledged once the copy is stored. Should the queue be deleted meanwhile,
// the copy has nowhere to return to and is gone.
//
// Headers of any kind become text: numbers, true, false and null as JSON has
// them, nested tables and arrays as JSON, timestamps as seconds, bytes that are
// no UTF-8 as base64. What nests deeper than 32 levels is a malformed message.
//
// A thread answers the server's heartbeats while a handler is busy. The server
// itself waits for an acknowledgement for 30 minutes (its consumer_timeout). So
// what has waited here for hold_timeout=300 is given back, and no more is asked
// for than is handled in that time; what the caller has in hand it settles, or
// gives back, within the same. A single call of a handler has to stay below.
SKR_API extern const struct skr_broker_ops skr_rabbitmq_broker;

#ifdef __cplusplus
}
#endif

#endif
