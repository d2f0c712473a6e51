<?php
// The console of a small shop that uses Symfony Messenger as its guides say:
// transports `outbox` and `failed` by Doctrine, `orders` by AMQP, Symfony's own
// commands, and `shop:send` and `shop:publish`, which write messages.
//
//   DATABASE_URL, MESSENGER_AMQP_DSN   where
//   SHOP_OUTBOX                        the options of the outbox, as a query
//   SHOP_ORDERED=1                     the outbox has partitions
//   SHOP_PLAIN=1                       nothing knows names, only classes
//   SHOP_PHP=1                         the outbox has PHP's own serialisation
//   SHOP_REFUSES=1                     what has the note `refused` fails
//   SHOP_RETRIES=N                     how often a worker tries again; never

namespace App;

require __DIR__.'/autoload.php';
require __DIR__.'/classes.php';

use App\Event\OrderPlaced;
use Doctrine\DBAL\DriverManager;
use Doctrine\DBAL\Exception\RetryableException;
use Doctrine\DBAL\Platforms\PostgreSQLPlatform;
use Freyr\MessageBroker\Contracts\MessageNameStamp;
use Freyr\MessageBroker\Contracts\PartitionKeyStamp;
use Freyr\MessageBroker\Inbox\MessageIdStamp;
use Symfony\Component\Console\Application;
use Symfony\Component\Console\Command\Command;
use Symfony\Component\Console\Input\InputArgument;
use Symfony\Component\Console\Input\InputInterface;
use Symfony\Component\Console\Input\InputOption;
use Symfony\Component\Console\Output\OutputInterface;
use Symfony\Component\EventDispatcher\EventDispatcher;
use Symfony\Component\Messenger\Bridge\Amqp\Transport as Amqp;
use Symfony\Component\Messenger\Bridge\Doctrine\Transport as Doctrine;
use Symfony\Component\Messenger\Command as Messenger;
use Symfony\Component\Messenger\Envelope;
use Symfony\Component\Messenger\EventListener as Listener;
use Symfony\Component\Messenger\Handler\HandlersLocator;
use Symfony\Component\Messenger\MessageBus;
use Symfony\Component\Messenger\Middleware;
use Symfony\Component\Messenger\Retry\MultiplierRetryStrategy;
use Symfony\Component\Messenger\RoutableMessageBus;
use Symfony\Component\Messenger\Stamp\DelayStamp;
use Symfony\Component\Messenger\Transport\Sender\SendersLocator;
use Symfony\Component\Messenger\Transport\Serialization\Normalizer\FlattenExceptionNormalizer;
use Symfony\Component\Messenger\Transport\Serialization\PhpSerializer;
use Symfony\Component\Messenger\Transport\Serialization\Serializer;
use Symfony\Component\PropertyInfo\Extractor\ReflectionExtractor;
use Symfony\Component\Serializer\Encoder\JsonEncoder;
use Symfony\Component\Serializer\Normalizer;
use Symfony\Component\Serializer\Serializer as SymfonySerializer;
use Symfony\Component\Uid\Uuid;
use Symfony\Contracts\Service\ServiceLocatorTrait;
use Symfony\Contracts\Service\ServiceProviderInterface;

const TYPES = ['order.placed' => OrderPlaced::class];

function is_set(string $name): bool
{
    return '1' === getenv($name);
}

final class Locator implements ServiceProviderInterface
{
    use ServiceLocatorTrait;

    public static function of(array $services): self
    {
        return new self(array_map(fn ($service) => fn () => $service, $services));
    }
}

/** Writes orders and their messages, a transaction each. */
final class SendCommand extends Command
{
    protected static $defaultName = 'shop:send';

    public function __construct(private $connection, private $bus)
    {
        parent::__construct();
    }

    protected function configure(): void
    {
        $this->addArgument('count', InputArgument::REQUIRED)
            ->addOption('first', null, InputOption::VALUE_REQUIRED, '', 0)
            ->addOption('note', null, InputOption::VALUE_REQUIRED, '', '')
            ->addOption('key', null, InputOption::VALUE_REQUIRED, 'a partition for each remainder')
            ->addOption('name', null, InputOption::VALUE_REQUIRED, 'for the stamp of the name')
            ->addOption('delay', null, InputOption::VALUE_REQUIRED, 'in ms')
            ->addOption('pause', null, InputOption::VALUE_REQUIRED, 'in ms, after each', 0);
    }

    protected function execute(InputInterface $input, OutputInterface $output): int
    {
        $first = (int) $input->getOption('first');
        for ($number = $first; $number < $first + (int) $input->getArgument('count'); ++$number) {
            $order = new OrderPlaced("order-$number", $number, $number / 7,
                $input->getOption('note') ?: "h\u{e9}llo \u{1f600} \"quoted\" \\ / <tag> \u{2028} $number",
                new \DateTimeImmutable('2026-11-15T02:45:00+00:00'));
            $id = (string) Uuid::v4();
            $stamps = [new MessageIdStamp($id)];
            if (null !== $key = $input->getOption('key')) {
                $stamps[] = new PartitionKeyStamp('customer-'.$number % (int) $key);
            }
            if (null !== $name = $input->getOption('name')) {
                $stamps[] = new MessageNameStamp($name);
            }
            if (null !== $delay = $input->getOption('delay')) {
                $stamps[] = new DelayStamp((int) $delay);
            }
            $this->place($order, $stamps);
            $output->writeln(json_encode(['order' => $order->orderId, 'id' => $id]));
            usleep(1000 * (int) $input->getOption('pause'));
        }

        return 0;
    }

    /** Beside workers a deadlock is an ordinary event: the transaction is tried again. */
    private function place(OrderPlaced $order, array $stamps): void
    {
        while (true) {
            try {
                $this->connection->transactional(function () use ($order, $stamps) {
                    $this->connection->insert('orders', ['order_id' => $order->orderId]);
                    $this->bus->dispatch($order, $stamps);
                });

                return;
            } catch (RetryableException) {
            }
        }
    }
}

/** Sends messages to the broker, with no outbox between. */
final class PublishCommand extends Command
{
    protected static $defaultName = 'shop:publish';

    public function __construct(private $sender)
    {
        parent::__construct();
    }

    protected function configure(): void
    {
        $this->addArgument('count', InputArgument::REQUIRED)
            ->addOption('note', null, InputOption::VALUE_REQUIRED, '', "\u{1f600}")
            ->addOption('delay', null, InputOption::VALUE_REQUIRED, 'in ms', 0);
    }

    protected function execute(InputInterface $input, OutputInterface $output): int
    {
        for ($number = 0; $number < (int) $input->getArgument('count'); ++$number) {
            $id = (string) Uuid::v4();
            $this->sender->send(new Envelope(
                new OrderPlaced("order-$number", $number, $number / 7, $input->getOption('note')), [
                    new MessageIdStamp($id), new DelayStamp((int) $input->getOption('delay')),
                    new Amqp\AmqpStamp('order.placed')]));
            $output->writeln(json_encode(['order' => "order-$number", 'id' => $id]));
        }

        return 0;
    }
}

$database = DriverManager::getConnection(['url' => getenv('DATABASE_URL')]);
$isPostgres = $database->getDatabasePlatform() instanceof PostgreSQLPlatform;
$json = new Serializer(new SymfonySerializer([
    new FlattenExceptionNormalizer(), new Normalizer\DateTimeNormalizer(), new Normalizer\ArrayDenormalizer(),
    new Normalizer\ObjectNormalizer(null, null, null, new ReflectionExtractor()),
], [new JsonEncoder()]));
$types = is_set('SHOP_PLAIN') ? [] : TYPES;

$doctrine = function (string $query, $serializer) use ($database, $isPostgres) {
    $class = $isPostgres ? Doctrine\PostgreSqlConnection::class : Doctrine\Connection::class;

    return new Doctrine\DoctrineTransport(
        new $class($class::buildConfiguration("doctrine://default?$query"), $database), $serializer);
};
$outbox = $doctrine('table_name=messenger_outbox&queue_name=outbox'.getenv('SHOP_OUTBOX'),
    is_set('SHOP_PHP') ? new PhpSerializer() : new NamedSerializer($json, $types, false));
$failed = $doctrine('queue_name=failed', $json);
$orders = new Amqp\AmqpTransport(Amqp\Connection::fromDsn(getenv('MESSENGER_AMQP_DSN'), [
    'exchange' => ['name' => 'order.placed', 'type' => 'topic'],
    'queues' => ['orders' => ['binding_keys' => ['#']]], 'confirm_timeout' => 10,
]), new NamedSerializer($json, $types, true));
$receivers = ['outbox' => $outbox, 'orders' => $orders, 'failed' => $failed];
$toOutbox = is_set('SHOP_ORDERED') ? new OrderedSender($database, $json) : $outbox;

$bus = new MessageBus([
    new Middleware\AddBusNameStampMiddleware('messenger.bus.default'),
    new Middleware\FailedMessageProcessingMiddleware(),
    new OutboxPublishing($orders, is_set('SHOP_REFUSES')),
    new Middleware\SendMessageMiddleware(new SendersLocator([OrderPlaced::class => ['outbox']],
        Locator::of(['outbox' => $toOutbox]))),
    new Deduplication($database),
    new Witness(),
    new Middleware\HandleMessageMiddleware(new HandlersLocator([
        OrderPlaced::class => [new Handler($database, is_set('SHOP_REFUSES'))]])),
]);
$routable = new RoutableMessageBus(Locator::of(['messenger.bus.default' => $bus]), $bus);

$strategy = new MultiplierRetryStrategy((int) (getenv('SHOP_RETRIES') ?: 0), 1000);
$events = new EventDispatcher();
foreach ([
    new Listener\AddErrorDetailsStampListener(),
    new Listener\SendFailedMessageForRetryListener(Locator::of($receivers),
        Locator::of(['outbox' => $strategy, 'orders' => $strategy]), null, $events),
    new Listener\SendFailedMessageToFailureTransportListener(
        Locator::of(['outbox' => $failed, 'orders' => $failed])),
    new Listener\DispatchPcntlSignalListener(),
    new Listener\StopWorkerOnSigtermSignalListener(),
] as $listener) {
    $events->addSubscriber($listener);
}

$failures = Locator::of(['failed' => $failed]);
$console = new Application();
$console->addCommands([
    new Messenger\ConsumeMessagesCommand($routable, Locator::of($receivers), $events, null, array_keys($receivers)),
    new Messenger\SetupTransportsCommand(Locator::of($receivers), array_keys($receivers)),
    new Messenger\FailedMessagesShowCommand('failed', $failures),
    new Messenger\FailedMessagesRetryCommand('failed', $failures, $routable, $events),
    new Messenger\FailedMessagesRemoveCommand('failed', $failures),
    new SendCommand($database, $bus),
    new PublishCommand($orders),
]);
$console->run();
