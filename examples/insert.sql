-- Publishing from a language that has no Skirnir library: one INSERT beside
-- your own statements, in your own transaction. Run it in the shop's database.
--
-- `type` is the message's name. The relay gives a row without an id one that
-- stays the same through every retry; to choose it yourself, add a header:
--   "X-Message-Id": "0193e4a2-7b1c-7c3e-9d2a-5f8e6b4c1a70"
-- Times are UTC; an available_at in the future delays the message.

BEGIN IMMEDIATE;

INSERT INTO orders (id, customer, cents) VALUES (2, 'Ole', 4500);

INSERT INTO messenger_outbox
    (body, headers, queue_name, created_at, available_at)
VALUES
    ('{"orderId": 2, "customer": "Ole", "amountCents": 4500}',
     '{"type": "order.placed"}',
     'outbox', CURRENT_TIMESTAMP, CURRENT_TIMESTAMP);

COMMIT;
