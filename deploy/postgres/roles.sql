-- Creates the two roles of the database, once, as its superuser. One owns the tables
-- and migrates them. The service uses the other, which may only read and write rows.
-- Their passwords come from the environment. The compose file's image runs this when
-- it creates the database.
\set ON_ERROR_STOP on
\getenv owner_password DB_OWNER_PASSWORD
\getenv password DB_PASSWORD
CREATE ROLE cutroom_owner LOGIN PASSWORD :'owner_password';
CREATE ROLE cutroom_service LOGIN PASSWORD :'password';
ALTER DATABASE cutroom OWNER TO cutroom_owner;
\connect cutroom
-- The owner of the database owns the schema. Rights to existing tables, and to those of
-- later releases:
GRANT USAGE ON SCHEMA public TO cutroom_service;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO cutroom_service;
ALTER DEFAULT PRIVILEGES FOR ROLE cutroom_owner IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO cutroom_service;
