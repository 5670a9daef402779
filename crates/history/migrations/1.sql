CREATE TABLE job (
  uid TEXT NOT NULL PRIMARY KEY,
  api TEXT, namespace TEXT, name TEXT, profile TEXT, submitter TEXT, queue TEXT, priority_class TEXT,
  phase TEXT, reason TEXT, message TEXT,
  submitted BIGINT, started BIGINT, ended BIGINT, gone BIGINT, unseen_from BIGINT,
  replicas BIGINT, succeeded BIGINT, failed BIGINT, retries BIGINT, cpu_milli BIGINT, memory_bytes BIGINT,
  version BIGINT NOT NULL, seen BIGINT NOT NULL
);
CREATE INDEX job_by_submission ON job (submitted, uid);
CREATE INDEX job_by_name ON job (namespace, name);
CREATE INDEX job_by_departure ON job (gone);
CREATE TABLE task (
  job_uid TEXT NOT NULL, name TEXT NOT NULL,
  replicas BIGINT, succeeded BIGINT, failed BIGINT, cpu_milli BIGINT, memory_bytes BIGINT,
  version BIGINT NOT NULL, seen BIGINT NOT NULL,
  PRIMARY KEY (job_uid, name)
);
CREATE TABLE attempt (
  uid TEXT NOT NULL PRIMARY KEY,
  job_uid TEXT NOT NULL, namespace TEXT, name TEXT, task TEXT, task_index BIGINT, node TEXT,
  phase TEXT, reason TEXT, message TEXT, exit_code BIGINT, restarts BIGINT,
  created BIGINT, scheduled BIGINT, started BIGINT, ended BIGINT, gone BIGINT, unseen_from BIGINT,
  cpu_milli BIGINT, memory_bytes BIGINT, evicted TEXT,
  version BIGINT NOT NULL, seen BIGINT NOT NULL
);
CREATE INDEX attempt_by_job ON attempt (job_uid);
CREATE INDEX attempt_by_departure ON attempt (gone);
CREATE INDEX attempt_by_end ON attempt (ended);
CREATE TABLE waits (
  group_uid TEXT NOT NULL, since BIGINT NOT NULL, class TEXT NOT NULL,
  job_uid TEXT NOT NULL, summary TEXT,
  version BIGINT NOT NULL, seen BIGINT NOT NULL,
  PRIMARY KEY (group_uid, since, class)
);
CREATE INDEX waits_by_job ON waits (job_uid);
CREATE TABLE used (
  uid TEXT NOT NULL PRIMARY KEY,
  sampled BIGINT NOT NULL, samples BIGINT,
  cpu_milli_sum BIGINT, cpu_milli_max BIGINT, memory_bytes_sum BIGINT, memory_bytes_max BIGINT
);
CREATE TABLE cursor_of (
  kind TEXT NOT NULL PRIMARY KEY,
  version TEXT NOT NULL, seen BIGINT NOT NULL, at BIGINT NOT NULL
);
