<?php
// SPDX-License-Identifier: MIT
// The worker of tests/integration/test_clients.py: an effect for each order, and a byte in the file `progress` for
// each call.

use Skirnir\Inbox;
use Skirnir\Message;
use Skirnir\Worker;

require __DIR__ . '/autoload.php';

$connection = connect($argv[1], 10);
$progress = fopen('progress', 'a');
$place = function (PDO $connection, Message $message) use ($progress): void {
    fwrite($progress, '.');
    $connection->prepare('INSERT INTO effects (order_id) VALUES (?)')->execute([$message->json()['orderId']]);
};
Worker::run(fn (Message $message) => Inbox::handle($connection, $message, $place), true);
