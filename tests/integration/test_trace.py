"""A W3C trace goes with its message: into the outbox, over RabbitMQ, to the
handler."""
import json

TRACE = {"traceparent":
         "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
         "tracestate": "congo=t61rcWkgMzE"}
HANDLER = """\
message_broker:
    inbox: {deduplication: {auto_setup: true}}
handlers:
    order.placed: {sql: 'INSERT INTO effects (headers) VALUES (:headers)'}
"""


def publish(world):
    world.check("publish", "order.placed", "--body", "{}",
                *(f"--{name}={value}" for name, value in TRACE.items()))
    world.relay_all()


def test_a_trace_goes_over_rabbitmq_to_the_handler(world):
    world.set_config(replace=[(f"/{world.vhost}'",
                               f"/{world.vhost}?queues[orders]='")])
    world.write_config(world.config_path.read_text() + HANDLER)
    world.set_up()
    world.ask("CREATE TABLE effects (headers VARCHAR(2000))")
    publish(world)
    message, = world.take_all()
    assert TRACE.items() <= message.headers.items()
    publish(world)
    world.check("consume", "amqp", "--stop-when-empty")
    handled = json.loads(world.ask("SELECT headers FROM effects"))
    assert TRACE.items() <= handled.items()
