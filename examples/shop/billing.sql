-- What the handler in skirnir.yaml writes. That an order has one invoice is
-- left to the deduplication on purpose: a unique key would hide its mistakes.
PRAGMA journal_mode = WAL;  -- readers and the consumer do not wait
CREATE TABLE IF NOT EXISTS invoice (
    id INTEGER PRIMARY KEY,
    order_id INTEGER NOT NULL,
    customer TEXT NOT NULL,
    cents INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS revenue (cents INTEGER NOT NULL);
INSERT INTO revenue SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM revenue);
