//! What people read when an image does not come: one line that says where, what, and what to do. `pumice image pull` and
//! pods say the same.

use pumice_images::manifest::{OCI_INDEX, machine};

use crate::image::{Image, index};
use crate::machine::{Machine, password};
use crate::redirects::ada;
use crate::server::{Access, Registry};

/// A failure with the names of this run left out.
fn general(failure: &str, registry: &str) -> String {
    let here = format!("linux/{}", machine().architecture());
    failure.replace(registry, "HOST").replace(&here, "HERE")
}

#[tokio::test]
async fn each_failure_is_one_line_that_says_what_to_do() {
    let registry = Registry::start().await;
    let image = Image::small("hello");
    registry.push("team/app", "1", &image);
    let list = index(&[("linux/s390x", &image.manifest), ("plan9/mips", &image.manifest)]);
    registry.push_manifest("team/app", "elsewhere", OCI_INDEX, &list);
    let machine = Machine::new(&[&registry]);
    let failed = async |tag: &str| {
        let failure = machine.failure(&registry.name("team/app", tag)).await;
        general(&failure, &registry.host)
    };
    assert_eq!(
        failed("elsewhere").await,
        "can't pull the image HOST/team/app:elsewhere: the image is not for HERE; it is for linux/s390x, plan9/mips: take \
         another tag, or build it for HERE"
    );
    assert_eq!(
        failed("9").await,
        "can't pull the image HOST/team/app:9: team/app:9 is not in registry HOST; check the name and the tag"
    );
    registry.open_by(Access::Basic, &[ada(&["team/app"])], &[]);
    assert_eq!(
        failed("1").await,
        "can't pull the image HOST/team/app:1: registry HOST refuses team/app:1 without credentials; name a secret with a \
         password for this registry in the pod's imagePullSecrets, or write one into ~/.docker/config.json, as docker login \
         HOST does"
    );
    let ring = password(&registry, "ada", "wrong");
    let failure = machine.failure_as(&registry.name("team/app", "1"), &ring).await;
    assert_eq!(
        general(&failure, &registry.host),
        "can't pull the image HOST/team/app:1: registry HOST refuses team/app:1 with the credentials that there are: not for \
         you; check the password and its rights in the secret that the pod's imagePullSecrets name, or that of HOST in \
         ~/.docker/config.json"
    );
    let name = registry.name("team/app", "1");
    let host = registry.host.clone();
    drop(registry);
    let failure = machine.failure(&name).await;
    assert_eq!(
        general(&failure, &host),
        "can't pull the image HOST/team/app:1: registry HOST can't be reached; check its name and port, and whether it runs: \
         client error (Connect): tcp connect error: Connection refused (os error 111)"
    );
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_one_line_that_says_what_to_do() {
    let machine = Machine::new(&[]);
    let registry = Registry::start_tls(&machine.path("authority.pem")).await;
    let failure = machine.failure(&registry.name("team/app", "1")).await;
    assert_eq!(
        general(&failure, &registry.host),
        "can't pull the image HOST/team/app:1: the certificate of registry HOST is not trusted; name its authority in the \
         registries' file (HOST: {authority: FILE}), or say that it has no TLS (HOST: {plainHttp: true}): client error \
         (Connect): invalid peer certificate: UnknownIssuer"
    );
}
