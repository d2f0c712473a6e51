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
SKR_API extern const struct skr_broker_ops skr_rabbitmq_broker;

#ifdef __cplusplus
}
#endif

#endif
