<?php
// SPDX-License-Identifier: MIT
// Run by tests/integration/test_clients.py, which makes the databases that SKR_CLIENT_SQLITE, _POSTGRESQL and
// _MARIADB name, with their tables. A runner of its own: the client needs no package, and neither do its tests.

use Skirnir\Inbox;
use Skirnir\Message;
use Skirnir\Outbox;
use Skirnir\SkirnirException;
use Skirnir\Wait;
use Skirnir\Worker;

require __DIR__ . '/autoload.php';

const SECONDS = [
    'sqlite' => "strftime('%s', available_at) - strftime('%s', created_at)",
    'postgresql' => 'extract(epoch FROM available_at - created_at)',
    'mariadb' => 'TIMESTAMPDIFF(SECOND, created_at, available_at)',
];

function vectors(string $name): array
{
    return json_decode(file_get_contents(__DIR__ . "/../../vectors/$name"), true, 512, JSON_THROW_ON_ERROR);
}

function same(mixed $wanted, mixed $found): void
{
    if ($wanted !== $found)
        throw new Exception('wanted ' . var_export($wanted, true) . ', found ' . var_export($found, true));
}

/** What it throws is of this class, and its text holds this. */
function fails(string $class, string $text, callable $function): void
{
    try {
        $function();
    } catch (Throwable $error) {
        if (!$error instanceof $class || !str_contains($error->getMessage(), $text))
            throw new Exception("wanted $class '$text', found " . $error::class . " '{$error->getMessage()}'");
        return;
    }
    throw new Exception("wanted $class '$text', found no error");
}

function ask(PDO $db, string $sql): array
{
    return $db->query($sql)->fetchAll(PDO::FETCH_NUM);
}

function message(?string $id = '01890a5d-ac96-774b-bcce-b302099a8057'): Message
{
    return new Message(['id' => $id, 'body' => '{}',
        'deduplication' => ['table' => 'message_broker_deduplication', 'name' => 'App\Order']]);
}

function effect(PDO $db): void
{
    $db->exec("INSERT INTO effects (order_id) VALUES ('1')");
}

function publish_vector(PDO $db, string $kind, array $vector): void
{
    $given = $vector['message'];
    $options = $vector['outbox'] ?? [];
    if (isset($options['stamp_namespace']))
        $options['stampNamespace'] = $options['stamp_namespace'];
    unset($options['stamp_namespace']);
    $publish = fn () => (new Outbox(...$options))->publish($db, $given['name'],
        $given['body'] ?? hex2bin($given['body_hex']), $given['key'] ?? null, $given['headers'] ?? [], $given['id'],
        0, $given['content_type'] ?? 'application/json');
    if (isset($vector['error'])) {
        fails(SkirnirException::class, $vector['error'], $publish);
        return;
    }
    $publish();
    $table = $options['table'] ?? (($options['kafka'] ?? false) ? 'kafka_outbox' : 'messenger_outbox');
    $quote = $kind === 'mariadb' ? '`' : '"';
    $columns = implode(', ', array_map(fn ($name) => "$quote$name$quote", array_keys($vector['row'])));
    same([array_values($vector['row'])], ask($db, "SELECT $columns FROM $table"));
}

function one_dialogue(array $vector): void
{
    $command = [PHP_BINARY, __DIR__ . '/worker.php', json_encode($vector['ready']['deduplicates'] ?? false)];
    $process = proc_open($command, [['pipe', 'r'], ['pipe', 'w'], ['file', '/dev/null', 'w']], $pipes);
    same($vector['ready'], json_decode(fgets($pipes[1]), true));
    foreach ($vector['dialogue'] as ['in' => $in, 'out' => $out]) {
        if ($in === null)
            break;
        fwrite($pipes[0], json_encode($in) . "\n");
        $answer = json_decode(fgets($pipes[1]), true);
        if (!isset($out['error']))
            unset($answer['error']);
        same($out, $answer);
    }
    if ($in !== null)
        fclose($pipes[0]);
    same('', stream_get_contents($pipes[1]));
    same(0, proc_close($process));
}

function database_tests(string $kind, PDO $db): array
{
    $begin = fn () => $db->exec($kind === 'sqlite' ? 'BEGIN IMMEDIATE' : 'BEGIN');
    $outbox = new Outbox();
    $tests = [];
    foreach (vectors('publish.json') as $vector)
        $tests["vector: {$vector['about']}"] = function () use ($db, $kind, $vector, $begin) {
            $begin();
            publish_vector($db, $kind, $vector);
        };
    return $tests + [
        'a message is there if the transaction commits' => function () use ($db, $begin, $outbox) {
            $begin();
            $id = $outbox->publish($db, 'order.placed', ['orderId' => 1, 'ü' => '/']);
            $db->exec('ROLLBACK');
            same([], ask($db, 'SELECT id FROM messenger_outbox'));
            $begin();
            $again = $outbox->publish($db, 'order.placed', ['orderId' => 1, 'ü' => '/']);
            $db->exec('COMMIT');
            same([['{"orderId":1,"ü":"/"}']], ask($db, 'SELECT body FROM messenger_outbox'));
            same(true, $id[14] === '7' && $id < $again);
        },
        "PDO's own transactions count" => function () use ($db, $outbox) {
            $db->beginTransaction();
            $outbox->publish($db, 'order.placed', []);
            $db->commit();
            same(1, count(ask($db, 'SELECT id FROM messenger_outbox')));
        },
        'autocommit is refused' => function () use ($db, $outbox) {
            fails(SkirnirException::class, 'autocommit', fn () => $outbox->publish($db, 'order.placed', []));
        },
        'one that was ended by SQL is none' => function () use ($kind, $outbox) {
            $db = connect($kind);
            $db->beginTransaction();
            $db->exec('ROLLBACK');
            fails(SkirnirException::class, 'autocommit', fn () => $outbox->publish($db, 'order.placed', []));
        },
        'an id of zeros is none' => function () use ($db, $begin, $outbox) {
            $begin();
            same('7', $outbox->publish($db, 'order.placed', [], id: '00000000-0000-0000-0000-000000000000')[14]);
        },
        'a delay is never short' => function () use ($db, $kind, $begin, $outbox) {
            $begin();
            $outbox->publish($db, 'order.placed', [], delay: 60.5);
            [[$seconds]] = ask($db, 'SELECT ' . SECONDS[$kind] . ' FROM messenger_outbox');
            same(true, in_array((int) $seconds, [61, 62], true));
        },
        'what is handled is recorded with it' => function () use ($db, $kind) {
            same(true, Inbox::handle($db, message(), effect(...)));
            same(false, Inbox::handle($db, message(), effect(...)));
            same(1, count(ask($db, 'SELECT order_id FROM effects')));
            $hex = $kind === 'postgresql' ? "encode(message_id, 'hex')" : 'lower(hex(message_id))';
            same([['01890a5dac96774bbcceb302099a8057', 'App\Order']],
                ask($db, "SELECT $hex, message_name FROM message_broker_deduplication"));
        },
        'a message without an id has no record' => function () use ($db) {
            for ($i = 0; $i < 2; $i++)
                same(true, Inbox::handle($db, message(null), effect(...)));
            same(2, count(ask($db, 'SELECT order_id FROM effects')));
            same([], ask($db, 'SELECT 1 FROM message_broker_deduplication'));
        },
        'what fails leaves nothing' => function () use ($db) {
            $fail = function (PDO $db) {
                effect($db);
                throw new LogicException('no');
            };
            fails(LogicException::class, 'no', fn () => Inbox::handle($db, message(), $fail));
            same([], ask($db, 'SELECT order_id FROM effects'));
            same([], ask($db, 'SELECT 1 FROM message_broker_deduplication'));
            fails(PDOException::class, '', fn () => Inbox::handle($db, message(), fn () => $db->exec('COMMIT')));
        },
        'a body that did not run has handled nothing' => function () use ($db) {
            $generator = function (PDO $db) {
                yield effect($db);
            };
            fails(SkirnirException::class, 'yield', fn () => Inbox::handle($db, message(), $generator));
            same([], ask($db, 'SELECT 1 FROM message_broker_deduplication'));
        },
        'after a deadlock nothing commits by itself' => function () use ($db, $kind) {
            if ($kind !== 'mariadb')
                return;
            fails(PDOException::class, '', fn () => Inbox::handle($db, message(), function (PDO $db) {
                $db->exec('ROLLBACK'); // as a deadlock does
                effect($db);
            }));
            same([], ask($db, 'SELECT 1 FROM effects'));
            same(true, Inbox::handle($db, message(), effect(...)));
            same(1, (int) ask($db, 'SELECT @@autocommit')[0][0]);
        },
        "a transaction of the caller's is refused" => function () use ($db, $begin) {
            $begin();
            fails(SkirnirException::class, 'inside a transaction', fn () => Inbox::handle($db, message(), effect(...)));
        },
        'a record that is locked is waited for' => function () use ($db, $kind) {
            $other = connect($kind);
            Inbox::handle($db, message(), fn () =>
                fails(Wait::class, 'locked', fn () => Inbox::handle($other, message(), effect(...))));
        },
    ];
}

/** Each test begins with empty tables. */
function clean(PDO $db, string $kind): void
{
    try {
        $db->exec('ROLLBACK');
    } catch (PDOException) {
    }
    foreach (['messenger_outbox', $kind === 'postgresql' ? 'other_outbox' : 'Other_Outbox', 'kafka_outbox',
        'message_broker_deduplication', 'effects'] as $table)
        $db->exec("DELETE FROM $table");
}

[$passed, $failed] = [0, 0];
$run = function (string $name, callable $test) use (&$passed, &$failed): void {
    try {
        $test();
        $passed++;
    } catch (Throwable $error) {
        $failed++;
        echo "FAILED $name: {$error->getMessage()}\n{$error->getTraceAsString()}\n";
    }
};
foreach (['sqlite', 'postgresql', 'mariadb'] as $kind) {
    $db = connect($kind);
    foreach (database_tests($kind, $db) as $name => $test) {
        clean($db, $kind);
        $run("$kind: $name", $test);
    }
}
foreach (vectors('worker.json') as $vector)
    $run("worker: {$vector['about']}", fn () => one_dialogue($vector));
$run('a body that did not run is no success', function () {
    $call = new ReflectionMethod(Worker::class, 'call');
    $generator = function () {
        yield 1;
    };
    $promise = fn () => new class {
        public function then(): void
        {
        }
    };
    foreach ([$generator, $promise] as $handler)
        same('retry', $call->invoke(null, $handler, message())['verdict']);
});
$run('ids ascend', function () {
    $ids = array_map(fn () => Skirnir\Id::make(), range(1, 5000));
    $sorted = array_unique($ids);
    sort($sorted);
    same($sorted, $ids);
});
echo "$passed passed, $failed failed\n";
exit($failed === 0 ? 0 : 1);
