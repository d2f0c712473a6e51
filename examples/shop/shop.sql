-- The shop's own table. `skirnir setup` puts the outbox beside it.
CREATE TABLE IF NOT EXISTS orders (
    id INTEGER PRIMARY KEY,
    customer TEXT NOT NULL,
    cents INTEGER NOT NULL
);
