<?php
// A handler as a process: skirnir-handler(7) says what it reads and writes.
// Each order gets a letter that is named by the message's id, so that a message
// that comes twice makes one letter.
//
//   handlers:
//       order.placed: {command: [php, worker.php], timeout: 10}

ini_set('display_errors', 'stderr');
if (!is_dir('letters'))
    mkdir('letters');
fwrite(STDOUT, "{\"ready\":true}\n");
while (($line = fgets(STDIN)) !== false) {
    $message = json_decode($line, true);
    $answer = ['delivery' => $message['delivery'], 'verdict' => 'accept'];
    try {
        $order = json_decode($message['body'], true, 64, JSON_THROW_ON_ERROR);
        $letter = "Dear {$order['customer']}, thank you for your order.\n";
        if (file_put_contents("letters/{$message['id']}.txt", $letter) === false)
            $answer = ['verdict' => 'retry', 'error' => 'no paper'] + $answer;
    } catch (JsonException $problem) {
        $answer = ['verdict' => 'reject', 'error' => $problem->getMessage()] + $answer;
    }
    fwrite(STDOUT, json_encode($answer) . "\n");
}
