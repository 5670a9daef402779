//! What a job's pod has written: from the server, or where to read it otherwise.

use pumice_wire::binoculars::LogRequest;
use pumice_wire::kubernetes::PodLogOptions;

use super::*;

impl Front {
    pub(super) async fn log(
        &self,
        namespace: &str,
        name: &str,
        container: &str,
        tail: Option<i64>,
    ) -> Result<String, Refusal> {
        let (_, id, told) = self.told(namespace, name).ok_or_else(|| Refusal::missing("pod", name))?;
        let mut options = json!({"container": container});
        if let Some(tail) = tail {
            options["tailLines"] = json!(tail);
        }
        let options = PodLogOptions::from_json(&options).map_err(|error| Refusal::invalid(error.to_string()))?;
        let request = LogRequest {
            job_id: id,
            pod_namespace: namespace.to_owned(),
            log_options: Some(options),
            ..LogRequest::default()
        };
        match self.calls.log(request).await {
            Ok(answer) => Ok(answer.log.into_iter().map(|line| line.line + "\n").collect()),
            Err(refusal) if refusal.code == 405 => Err(elsewhere(namespace, &told)),
            Err(refusal) => Err(refusal),
        }
    }
}

/// Where the log can be read.
fn elsewhere(namespace: &str, told: &Told) -> Refusal {
    let Told { pod, cluster, .. } = told;
    Refusal::not_here(format!(
        "this fleet's server reads no logs: the pod ran in cluster {cluster}, where kubectl logs -n {namespace} {pod} shows what it wrote"
    ))
}
