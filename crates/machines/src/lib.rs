//! State machines of jobs, queues and pod groups.
