<?php
// SPDX-License-Identifier: MIT
// As Composer's, without it; and connections to the databases of the tests.

spl_autoload_register(function (string $class): void {
    if (str_starts_with($class, 'Skirnir\\'))
        require __DIR__ . '/../src/' . strtr(substr($class, 8), '\\', '/') . '.php';
});

function connect(string $kind, int $patience = 0): PDO
{
    if ($kind === 'sqlite')
        return new PDO('sqlite:' . getenv('SKR_CLIENT_SQLITE'), null, null, [PDO::ATTR_TIMEOUT => $patience]);
    $url = parse_url(getenv('SKR_CLIENT_' . strtoupper($kind)));
    $driver = ['postgresql' => 'pgsql', 'mariadb' => 'mysql'][$kind];
    $db = new PDO("$driver:host={$url['host']};port={$url['port']};dbname=" . substr($url['path'], 1),
        $url['user'], '');
    $db->exec($kind === 'mariadb' ? "SET innodb_lock_wait_timeout = $patience"
        : 'SET lock_timeout = ' . ($patience * 1000 + 50));
    return $db;
}
