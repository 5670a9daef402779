//! What the operators of others send, each as its source has it, and what they have to find again.
//!
//! A case is one operator, named like it. It runs on our API server and on a real one; what an operator makes of kinds that only
//! Kubernetes has stands there for itself, and on ours the pods come that those kinds would make. Invariant: repository, commit
//! and path of the source stand at the head of each file; what is sent follows it field by field.

mod airflow;
mod argo;
mod flink;
mod jobset;
mod kuberay;
mod lws;
mod mpi_operator;
mod operator;
mod spark;
mod spark_operator;
mod trainer;
mod training_operator;

pub use airflow::airflow;
pub use argo::argo;
pub use flink::flink;
pub use jobset::jobset;
pub use kuberay::kuberay;
pub use lws::lws;
pub use mpi_operator::mpi_operator;
pub use operator::{Operator, Server};
pub use spark::spark;
pub use spark_operator::spark_operator;
pub use trainer::trainer;
pub use training_operator::training_operator;

/// Makes a test of each case. `$server` is a [`Server`], `$start` a function from the case's name to something that gives
/// [`Clients`](pumice_testkit::Clients) by reference.
#[macro_export]
macro_rules! on_each_operator {
    ($server:expr, $start:expr) => {
        $crate::on_each_operator! { $server, $start;
            airflow argo flink jobset kuberay lws mpi_operator spark spark_operator trainer training_operator
        }
    };
    ($server:expr, $start:expr; $($case:ident)+) => {
        $(
            #[test]
            fn $case() {
                $crate::operators::$case(&$start(stringify!($case)), $server);
            }
        )+
    };
}
