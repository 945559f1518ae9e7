-- makes: trigger walrelay_notify on {{.Table}}
--
-- For RELAY_MODE=polling: each statement that inserts wakes the relay when its transaction commits, in
-- place of POLLING_INTERVAL. It is not made until it is asked for, since it has a price: commits that
-- notify wait for each other while they enter the server's one queue of notifications. The payload is
-- empty, so that a transaction notifies once however much it inserts.
--
-- An insert into a partition by name does not fire it: insert into the table.

create function {{.NotifyFunction}}() returns trigger language plpgsql as $$
begin
  perform pg_catalog.pg_notify('walrelay_' || tg_relid, '');
  return null;
end
$$;

create trigger walrelay_notify after insert on {{.TableSQL}}
  for each statement execute function {{.NotifyFunction}}();
