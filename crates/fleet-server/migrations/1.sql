CREATE TABLE head (
  one BIGINT NOT NULL PRIMARY KEY,
  seq BIGINT NOT NULL, folded BIGINT NOT NULL,
  epoch BIGINT NOT NULL, holder TEXT NOT NULL, until BIGINT NOT NULL
);
INSERT INTO head (one, seq, folded, epoch, holder, until) VALUES (1, 0, 0, 0, '', 0);
CREATE TABLE log (
  seq BIGINT NOT NULL PRIMARY KEY,
  at BIGINT NOT NULL, queue TEXT NOT NULL, job_set TEXT NOT NULL, body BYTES NOT NULL
);
CREATE INDEX log_of_set ON log (queue, job_set, seq);
CREATE TABLE specs (digest BYTES NOT NULL PRIMARY KEY, body BYTES NOT NULL, used_at BIGINT NOT NULL);
CREATE TABLE shapes (digest BYTES NOT NULL PRIMARY KEY, body BYTES NOT NULL);
CREATE TABLE queues (name TEXT NOT NULL PRIMARY KEY, body BYTES NOT NULL);
CREATE TABLE dedup (
  queue TEXT NOT NULL, client_id TEXT NOT NULL,
  job BYTES NOT NULL, at BIGINT NOT NULL,
  PRIMARY KEY (queue, client_id)
) WITHOUT ROWID;
CREATE TABLE jobs (
  id BYTES NOT NULL PRIMARY KEY,
  seq BIGINT NOT NULL, queue TEXT NOT NULL, job_set TEXT NOT NULL, namespace TEXT NOT NULL, owner TEXT NOT NULL,
  external_uri TEXT, spec BYTES NOT NULL, shape BYTES NOT NULL, gang TEXT, fail_fast BIGINT NOT NULL,
  submitted BIGINT NOT NULL,
  state TEXT NOT NULL, priority BIGINT NOT NULL,
  attempts BIGINT NOT NULL, returned BIGINT NOT NULL, failed BIGINT NOT NULL,
  asked TEXT, avoid TEXT,
  last_transition BIGINT NOT NULL, ended BIGINT, cancel_user TEXT, cancel_reason TEXT, error TEXT
) WITHOUT ROWID;
CREATE INDEX jobs_of_set ON jobs (queue, job_set);
CREATE INDEX jobs_active ON jobs (queue) WHERE ended IS NULL;
CREATE INDEX jobs_by_uri ON jobs (external_uri) WHERE external_uri IS NOT NULL;
CREATE TABLE runs (
  job BYTES NOT NULL, attempt BIGINT NOT NULL,
  state TEXT, cluster TEXT, node TEXT, pool TEXT,
  leased BIGINT, pending BIGINT, started BIGINT, finished BIGINT, holds BIGINT,
  pod TEXT, preempted TEXT, error TEXT, ingress TEXT,
  PRIMARY KEY (job, attempt)
) WITHOUT ROWID;
CREATE INDEX runs_holding ON runs (job, attempt) WHERE holds = 1;
