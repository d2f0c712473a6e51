"""What servers make of statements that were prepared long ago."""
import shop as shops
from outbox_world import COLUMNS, PLAIN_TYPE, postgresql  # noqa: F401

SCANS = "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = " \
    "'messenger_outbox'"
GONE = "SELECT n_tup_del FROM pg_stat_user_tables WHERE relname = " \
    "'messenger_outbox'"

MANY = 5000


def fill(world, rows):
    world.server.ask(
        f"INSERT INTO messenger_outbox {COLUMNS} SELECT '{{}}', "
        f"'{PLAIN_TYPE}', 'outbox', {world.server.now}, {world.server.now} "
        f"FROM generate_series(1, {rows})")


def scans(world, gone):
    """The server tells of what was done once a session is idle."""
    shops.until(lambda: int(world.server.ask(GONE)) == gone,
                lambda: world.server.ask(GONE))
    return int(world.server.ask(SCANS))


def test_plans_of_a_small_table_do_no_harm_when_it_has_grown(
        postgresql):  # noqa: F811
    """A plan is kept until the table is analysed."""
    world = postgresql
    world.set_up()
    world.server.ask("ALTER TABLE messenger_outbox "
                     "SET (autovacuum_enabled = false)")
    relay = world.start("relay", "outbox")
    sent = 0
    # The sixth execution of a statement is the first with a plan that stays.
    for turn in range(16):
        if turn % 8 == 0:
            world.server.ask("VACUUM ANALYZE messenger_outbox")
        fill(world, 60)
        sent += 60
        shops.until(lambda: world.arrived() == sent, relay.log)
    before = scans(world, sent)
    fill(world, MANY)
    shops.until(lambda: world.arrived() == sent + MANY, relay.log)
    # Twenty batches; a look around, once in a while, is none.
    assert scans(world, sent + MANY) - before < 10
