-- makes: publication {{.Publication}} of {{.Table}}
--
-- The publication must be there before the replication slot: the slot reads the catalog as it was when
-- a row was written, and a publication that is younger than the row does not exist for it.
--
-- Inserts only: marking, deleting and truncating stay invisible to the stream and need no replica
-- identity. Through the root, so that the table may be partitioned.

create publication {{.PublicationSQL}} for table {{.TableSQL}}
  with (publish = 'insert', publish_via_partition_root = true);
