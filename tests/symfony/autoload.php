<?php
// Loads Symfony Messenger and Doctrine DBAL from Debian's packages; each has a
// loader of its own that brings what it needs. Run by itself it tells whether
// all of it is there.

error_reporting(E_ALL & ~E_DEPRECATED & ~E_USER_DEPRECATED);
foreach (['amqp', 'pcntl', 'pdo_mysql', 'pdo_pgsql', 'pdo_sqlite'] as $extension) {
    if (!extension_loaded($extension)) {
        fwrite(STDERR, "the extension $extension is not installed\n");
        exit(1);
    }
}
foreach ([
    'Symfony/Component/Console', 'Symfony/Component/EventDispatcher',
    'Symfony/Component/Messenger', 'Symfony/Component/Messenger/Bridge/Amqp',
    'Symfony/Component/Messenger/Bridge/Doctrine', 'Symfony/Component/Serializer',
    'Symfony/Component/PropertyAccess', 'Symfony/Component/PropertyInfo',
    'Symfony/Component/Uid', 'Symfony/Contracts/Service', 'Doctrine/DBAL',
] as $package) {
    $loader = "/usr/share/php/$package/autoload.php";
    if (!is_file($loader)) {
        fwrite(STDERR, "$loader is not installed\n");
        exit(1);
    }
    require_once $loader;
}
