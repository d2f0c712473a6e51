<?php
// What an application and Freyr's bundle add to Symfony Messenger: a message,
// the stamps, the serializers of outbox and inbox, three middlewares.

namespace Freyr\MessageBroker\Inbox {
    use Symfony\Component\Messenger\Stamp\StampInterface;

    final class MessageIdStamp implements StampInterface
    {
        public function __construct(public readonly string $messageId)
        {
        }
    }
}

namespace Freyr\MessageBroker\Contracts {
    use Symfony\Component\Messenger\Stamp\StampInterface;

    final class MessageIdStamp implements StampInterface
    {
        public function __construct(public readonly string $messageId)
        {
        }
    }

    final class MessageNameStamp implements StampInterface
    {
        public function __construct(public readonly string $messageName)
        {
        }
    }

    final class PartitionKeyStamp implements StampInterface
    {
        public function __construct(public readonly string $partitionKey)
        {
        }
    }
}

namespace App\Event {
    final class OrderPlaced
    {
        public function __construct(
            public readonly string $orderId,
            public readonly int $number = 0,
            public readonly float $total = 0.0,
            public readonly string $note = '',
            public readonly ?\DateTimeImmutable $placedAt = null,
        ) {
        }
    }
}

namespace App {
    use App\Event\OrderPlaced;
    use Doctrine\DBAL\Connection;
    use Doctrine\DBAL\Exception\UniqueConstraintViolationException;
    use Doctrine\DBAL\ParameterType;
    use Freyr\MessageBroker\Contracts;
    use Freyr\MessageBroker\Inbox;
    use Symfony\Component\Messenger\Bridge\Amqp\Transport\AmqpStamp;
    use Symfony\Component\Messenger\Envelope;
    use Symfony\Component\Messenger\Exception\MessageDecodingFailedException;
    use Symfony\Component\Messenger\Middleware\MiddlewareInterface;
    use Symfony\Component\Messenger\Middleware\StackInterface;
    use Symfony\Component\Messenger\Stamp\ReceivedStamp;
    use Symfony\Component\Messenger\Transport\Sender\SenderInterface;
    use Symfony\Component\Messenger\Transport\Serialization\SerializerInterface;

    /** The id of a message, by the stamp of either generation of the bundle. */
    function message_id(Envelope $envelope): ?string
    {
        $stamp = $envelope->last(Inbox\MessageIdStamp::class)
            ?? $envelope->last(Contracts\MessageIdStamp::class);

        return $stamp?->messageId;
    }

    /** Reads names in place of classes; writes them, too, where it is told to. */
    final class NamedSerializer implements SerializerInterface
    {
        /** @param array<string, class-string> $types */
        public function __construct(
            private SerializerInterface $inner, private array $types, private bool $writesNames)
        {
        }

        public function decode(array $encodedEnvelope): Envelope
        {
            $type = $encodedEnvelope['headers']['type'] ?? '';
            if (!str_contains($type, '\\')) {
                $encodedEnvelope['headers']['type'] = $this->types[$type]
                    ?? $encodedEnvelope['headers']['X-Message-Class']
                    ?? throw new MessageDecodingFailedException("Unknown message type \"$type\".");
            }

            return $this->inner->decode($encodedEnvelope);
        }

        public function encode(Envelope $envelope): array
        {
            $encoded = $this->inner->encode($envelope);
            $name = array_search($encoded['headers']['type'], $this->types, true);
            if ($this->writesNames && false !== $name) {
                $encoded['headers']['X-Message-Class'] = $encoded['headers']['type'];
                $encoded['headers']['type'] = $name;
            }

            return $encoded;
        }
    }

    /** Writes into an ordered outbox: Symfony's columns and the partition's key. */
    final class OrderedSender implements SenderInterface
    {
        public function __construct(private Connection $connection, private SerializerInterface $serializer)
        {
        }

        public function send(Envelope $envelope): Envelope
        {
            $encoded = $this->serializer->encode($envelope);
            $now = gmdate('Y-m-d H:i:s');
            $this->connection->insert('messenger_outbox', [
                'body' => $encoded['body'], 'headers' => json_encode($encoded['headers']),
                'queue_name' => 'outbox', 'created_at' => $now, 'available_at' => $now,
                'partition_key' => $envelope->last(Contracts\PartitionKeyStamp::class)?->partitionKey ?? '',
            ]);

            return $envelope;
        }
    }

    /** Publishes what a worker takes from the outbox, under the id that it has. */
    final class OutboxPublishing implements MiddlewareInterface
    {
        public function __construct(private SenderInterface $publisher, private bool $refuses)
        {
        }

        public function handle(Envelope $envelope, StackInterface $stack): Envelope
        {
            $received = $envelope->last(ReceivedStamp::class);
            if ('outbox' !== $received?->getTransportName()) {
                return $stack->next()->handle($envelope, $stack);
            }
            if ($this->refuses && 'refused' === $envelope->getMessage()->note) {
                throw new \RuntimeException('the broker is not to have this');
            }
            $stamps = array_filter([$envelope->last(Inbox\MessageIdStamp::class),
                $envelope->last(Contracts\MessageIdStamp::class), $envelope->last(Contracts\MessageNameStamp::class)]);
            $this->publisher->send(new Envelope($envelope->getMessage(),
                [...$stamps, new AmqpStamp('order.placed')]));

            return $envelope;
        }
    }

    /** Handles each id once: its row and the handler's effects commit together. */
    final class Deduplication implements MiddlewareInterface
    {
        public function __construct(private Connection $connection)
        {
        }

        public function handle(Envelope $envelope, StackInterface $stack): Envelope
        {
            $id = message_id($envelope);
            if (null === $id || null === $envelope->last(ReceivedStamp::class)) {
                return $stack->next()->handle($envelope, $stack);
            }
            $this->connection->beginTransaction();
            try {
                $this->connection->insert('message_broker_deduplication', [
                    'message_id' => hex2bin(str_replace('-', '', $id)),
                    'message_name' => $envelope->getMessage()::class,
                    'processed_at' => gmdate('Y-m-d H:i:s'),
                ], [ParameterType::LARGE_OBJECT]);
                $envelope = $stack->next()->handle($envelope, $stack);
                $this->connection->commit();
            } catch (UniqueConstraintViolationException) {
                $this->connection->rollBack();
            } catch (\Throwable $error) {
                $this->connection->rollBack();
                throw $error;
            }

            return $envelope;
        }
    }

    final class Handler
    {
        public function __construct(private Connection $connection, private bool $refuses)
        {
        }

        public function __invoke(OrderPlaced $order): void
        {
            if ($this->refuses && 'refused' === $order->note) {
                throw new \RuntimeException('the shop does not take this', 42);
            }
            $this->connection->insert('effects', ['order_id' => $order->orderId, 'handler' => 'symfony']);
        }
    }

    /** Tells by a line of JSON what has been handled. */
    final class Witness implements MiddlewareInterface
    {
        public function handle(Envelope $envelope, StackInterface $stack): Envelope
        {
            $envelope = $stack->next()->handle($envelope, $stack);
            if (null !== $envelope->last(ReceivedStamp::class)) {
                fwrite(\STDOUT, json_encode([
                    'class' => $envelope->getMessage()::class, 'order' => (array) $envelope->getMessage(),
                    'placedAt' => $envelope->getMessage()->placedAt?->format(\DATE_ATOM),
                    'id' => message_id($envelope),
                    // What is public of each: all of the bundle's.
                    'stamps' => array_map(fn (array $stamps) => array_map('get_object_vars', $stamps),
                        $envelope->all()),
                ])."\n");
            }

            return $envelope;
        }
    }
}
