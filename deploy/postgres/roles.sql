-- The two roles of the database, made once by its superuser: one owns the tables
-- and migrates, the other, which the service has, may read and write rows and no
-- more. Their passwords come from the environment. The image of the compose file
-- runs this when it makes the database.
\set ON_ERROR_STOP on
\getenv owner_password DB_OWNER_PASSWORD
\getenv password DB_PASSWORD
CREATE ROLE cutroom_owner LOGIN PASSWORD :'owner_password';
CREATE ROLE cutroom_service LOGIN PASSWORD :'password';
ALTER DATABASE cutroom OWNER TO cutroom_owner;
\connect cutroom
-- The schema belongs to whoever owns the database. Tables that are there, and those
-- of later releases:
GRANT USAGE ON SCHEMA public TO cutroom_service;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO cutroom_service;
ALTER DEFAULT PRIVILEGES FOR ROLE cutroom_owner IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO cutroom_service;
