-- The least that walrelay needs, for RELAY_AFTER_PUBLISH={{.AfterPublish}}{{if .Polling}} and RELAY_MODE=polling. Run it in the
-- database of the outbox as a user who may create roles and owns the table; it can be run again.
{{else}}. Run it in the database of the
-- outbox as a superuser, which a role with REPLICATION takes; it can be run again. (Amazon RDS has no
-- superuser: leave "replication" out below and grant rds_replication to the role.)
--
-- REPLICATION is a right of the whole server: such a role can read every table that is in a
-- publication, and drop slots. Give it a login of its own.
{{end}}
do $$
begin
  if not exists (select from pg_roles where rolname = {{.RoleLiteral}}) then
    create role {{.Role}};
  end if;
  execute format('grant connect on database %I to %I', current_database(), {{.RoleLiteral}});
end
$$;

alter role {{.Role}} login{{if not .Polling}} replication{{end}};
-- Its password, in psql, where it is not logged:  \password {{.RoleName}}

grant usage on schema {{.Schema}} to {{.Role}};
{{- if eq .AfterPublish "keep"}}

-- keep: rows are counted at the first start and never changed.
revoke update ({{.Col.PublishedAt}}), delete on {{.TableSQL}} from {{.Role}};
grant select on {{.TableSQL}} to {{.Role}};
{{- else if eq .AfterPublish "delete"}}

-- delete: rows are locked before they are deleted, which asks for UPDATE on one column.
grant select, update ({{.Col.PublishedAt}}), delete on {{.TableSQL}} to {{.Role}};
{{- else}}

-- mark: {{.Col.PublishedAt}} is the one column that it may write.
{{- if .Retention}} OUTBOX_RETENTION deletes.
grant delete on {{.TableSQL}} to {{.Role}};
{{- else}}
revoke delete on {{.TableSQL}} from {{.Role}};
{{- end}}
grant select, update ({{.Col.PublishedAt}}) on {{.TableSQL}} to {{.Role}};
{{- end}}

{{if .Polling -}}
-- Nothing is needed for its advisory lock and to be woken by NOTIFY. pg_hba.conf must let it in to this
-- database:
{{- else -}}
-- Nothing is needed for its advisory lock, its slot and the publication. pg_hba.conf must let it in to
-- this database (a logical replication connection goes by the database's name, not by "replication"):
{{- end}}
--   host  <database>  {{.RoleName}}  <address of walrelay>  scram-sha-256
