//! What is refused of pods in tenants' namespaces, as expressions of policies.
//!
//! Invariant: an expression sees the pod and its namespace's annotations and nothing else, so that it holds with nothing of ours
//! running. Functions are those of Kubernetes 1.30, so items are named by their names: there is no index. The same is judged in Rust
//! by `tenant_pods`; a test compares both.

use super::quoted;

/// What other expressions read as `variables.NAME`.
pub(super) struct Variable {
    pub name: &'static str,
    pub is: &'static str,
}

/// A reason to refuse a pod.
pub(super) struct Rule {
    pub name: &'static str,
    /// The paths of the fields that are wrong.
    pub at: &'static str,
    /// The reason and what to do; `{name}` is the variable of that name.
    pub says: &'static str,
}

impl Rule {
    /// The variable of the paths that are wrong: `hostPortsAt` of `host-ports`.
    pub(super) fn finding(&self) -> String {
        let mut words = self.name.split('-');
        let first = words.next().unwrap_or_default().to_owned();
        let capital = |word: &str| word[..1].to_ascii_uppercase() + &word[1..];
        words.fold(first, |name, word| name + &capital(word)) + "At"
    }

    /// The refusal, as an expression: the first path that is wrong, the reason and what to do.
    pub(super) fn message(&self) -> String {
        let mut message = format!("variables.{}[0] + {}", self.finding(), quoted(": Forbidden: "));
        let mut rest = self.says;
        while let Some((text, (name, after))) =
            rest.split_once('{').and_then(|(text, tail)| Some((text, tail.split_once('}')?)))
        {
            message += &format!(" + {} + string(variables.{name})", quoted(text));
            rest = after;
        }
        message + " + " + &quoted(rest)
    }
}

/// What the rules and the mutation read.
pub(super) const VARIABLES: &[Variable] = &[
    Variable { name: "of", is: "namespaceObject.metadata.?annotations.orValue({})" },
    Variable { name: "tenant", is: "namespaceObject.metadata.labels['pumice.sh/tenant']" },
    Variable {
        name: "known",
        is: "variables.of[?'pumice.sh/tenant-uid'].orValue('').matches('^[1-9][0-9]{0,9}$') && \
            variables.of[?'pumice.sh/tenant-gid'].orValue('').matches('^[1-9][0-9]{0,9}$') && \
            variables.of[?'pumice.sh/tenant-groups'].orValue('').matches('^([1-9][0-9]{0,9}(,[1-9][0-9]{0,9})*)?$')",
    },
    Variable { name: "uid", is: "variables.known ? int(variables.of['pumice.sh/tenant-uid']) : 0" },
    Variable { name: "gid", is: "variables.known ? int(variables.of['pumice.sh/tenant-gid']) : 0" },
    Variable {
        name: "groups",
        is: "variables.known ? variables.of[?'pumice.sh/tenant-groups'].orValue('').split(',').filter(g, g != \
            '').map(g, int(g)) : []",
    },
    Variable { name: "closed", is: "variables.of[?'pumice.sh/tenant-closed'].orValue('')" },
    Variable { name: "devices", is: "variables.of[?'pumice.sh/tenant-devices'].orValue('').split(',')" },
    Variable { name: "queues", is: "variables.of[?'pumice.sh/tenant-queues'].orValue('default').split(',')" },
    Variable {
        name: "folders",
        is: "variables.of[?'pumice.sh/tenant-host-paths'].orValue('').split('\\n').filter(l, l.matches('^r[wo]:/'))",
    },
    Variable {
        name: "given",
        is: "variables.of[?'pumice.sh/tenant-volumes'].orValue('').split('\\n').filter(l, \
            l.matches('^r[wo]:/[^:]*:(hostPath:/|claim:).+'))",
    },
    Variable {
        name: "writable",
        is: "variables.folders.filter(l, l.startsWith('rw:')).map(l, l.substring(3)) + variables.given.filter(l, \
            l.startsWith('rw:')).map(l, l.split(':', 4)).filter(f, f[2] == 'hostPath').map(f, f[3])",
    },
    Variable {
        name: "readable",
        is: "variables.folders.filter(l, l.startsWith('ro:')).map(l, l.substring(3)) + variables.given.filter(l, \
            l.startsWith('ro:')).map(l, l.split(':', 4)).filter(f, f[2] == 'hostPath').map(f, f[3])",
    },
    Variable { name: "spec", is: "object.spec" },
    Variable { name: "context", is: "object.spec.?securityContext.orValue({})" },
    Variable { name: "annotations", is: "object.metadata.?annotations.orValue({})" },
    Variable {
        name: "containers",
        is: "variables.spec.containers.map(c, {'at': dyn('spec.containers[' + c.name + ']'), 'is': dyn(c)}) + \
            variables.spec.?initContainers.orValue([]).map(c, {'at': dyn('spec.initContainers[' + c.name + ']'), \
            'is': dyn(c)}) + variables.spec.?ephemeralContainers.orValue([]).map(c, {'at': \
            dyn('spec.ephemeralContainers[' + c.name + ']'), 'is': dyn(c)})",
    },
    Variable {
        name: "contexts",
        is: "variables.containers.map(c, {'at': dyn(c.at + '.securityContext'), 'is': \
            dyn(c.is.?securityContext.orValue({}))})",
    },
    Variable { name: "volumes", is: "variables.spec.?volumes.orValue([])" },
    Variable { name: "folderVolumes", is: "variables.volumes.filter(v, has(v.hostPath))" },
];

/// The rules, in the order in which they are told: the first that a pod breaks.
pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "tenant-is-known",
        at: "variables.known ? [] : ['metadata.namespace']",
        says: "the annotations pumice.sh/tenant-uid, pumice.sh/tenant-gid and pumice.sh/tenant-groups of the namespace \
            say no user of tenant {tenant}; an administrator sees why with: kubectl describe tenant {tenant}",
    },
    Rule {
        name: "tenant-is-open",
        at: "variables.closed == '' ? [] : ['metadata.namespace']",
        says: "takes no new pods: {closed}",
    },
    Rule {
        name: "mirror",
        at: "'kubernetes.io/config.mirror' in variables.annotations ? \
            ['metadata.annotations[kubernetes.io/config.mirror]'] : []",
        says: "a tenant has no static pods; remove the annotation",
    },
    Rule {
        name: "annotations-of-confinement",
        at: "variables.annotations.filter(key, (key.startsWith('container.apparmor.security.beta.kubernetes.io/') || \
            key.startsWith('seccomp.security.alpha.kubernetes.io/') || \
            key.startsWith('container.seccomp.security.alpha.kubernetes.io/')) && variables.annotations[key] != \
            'runtime/default').map(key, 'metadata.annotations[' + key + ']')",
        says: "pods of tenant {tenant} are confined as the node does by default; remove the annotation",
    },
    Rule {
        name: "run-as-user",
        at: "(variables.context.?runAsUser.orValue(0) == variables.uid ? [] : ['spec.securityContext.runAsUser']) + \
            variables.contexts.filter(c, c.is.?runAsUser.orValue(variables.uid) != variables.uid).map(c, c.at + \
            '.runAsUser')",
        says: "pods of tenant {tenant} run as user {uid}; remove the field",
    },
    Rule {
        name: "run-as-group",
        at: "(variables.context.?runAsGroup.orValue(0) == variables.gid ? [] : ['spec.securityContext.runAsGroup']) + \
            variables.contexts.filter(c, c.is.?runAsGroup.orValue(variables.gid) != variables.gid).map(c, c.at + \
            '.runAsGroup')",
        says: "pods of tenant {tenant} run as group {gid}; remove the field",
    },
    Rule {
        name: "file-group",
        at: "variables.context.?fsGroup.orValue(0) == variables.gid ? [] : ['spec.securityContext.fsGroup']",
        says: "pods of tenant {tenant} have volumes of group {gid}; remove the field",
    },
    Rule {
        name: "groups",
        at: "(sets.equivalent(variables.context.?supplementalGroups.orValue([]), variables.groups) ? [] : \
            ['spec.securityContext.supplementalGroups']) + (variables.context.?supplementalGroupsPolicy.orValue('') \
            == 'Strict' ? [] : ['spec.securityContext.supplementalGroupsPolicy'])",
        says: "pods of tenant {tenant} have the groups of the tenant and no others, not those of images; remove the \
            field",
    },
    Rule {
        name: "non-root",
        at: "(variables.context.?runAsNonRoot.orValue(false) ? [] : ['spec.securityContext.runAsNonRoot']) + \
            variables.contexts.filter(c, !c.is.?runAsNonRoot.orValue(true)).map(c, c.at + '.runAsNonRoot')",
        says: "pods of tenant {tenant} never run as root; remove the field",
    },
    Rule {
        name: "seccomp",
        at: "(variables.context.?seccompProfile.?type.orValue('') == 'RuntimeDefault' ? [] : \
            ['spec.securityContext.seccompProfile']) + variables.contexts.filter(c, \
            c.is.?seccompProfile.?type.orValue('RuntimeDefault') != 'RuntimeDefault') .map(c, c.at + \
            '.seccompProfile')",
        says: "pods of tenant {tenant} have the profile RuntimeDefault; remove the field",
    },
    Rule {
        name: "app-armor",
        at: "(variables.context.?appArmorProfile.?type.orValue('RuntimeDefault') == 'RuntimeDefault' ? [] : \
            ['spec.securityContext.appArmorProfile']) + variables.contexts.filter(c, \
            c.is.?appArmorProfile.?type.orValue('RuntimeDefault') != 'RuntimeDefault') .map(c, c.at + \
            '.appArmorProfile')",
        says: "pods of tenant {tenant} have the profile RuntimeDefault; remove the field",
    },
    Rule {
        name: "selinux",
        at: "(has(variables.context.seLinuxOptions) ? ['spec.securityContext.seLinuxOptions'] : []) + \
            variables.contexts.filter(c, has(c.is.seLinuxOptions)).map(c, c.at + '.seLinuxOptions')",
        says: "pods of tenant {tenant} have the label that the node gives them; remove the field",
    },
    Rule {
        name: "windows",
        at: "(variables.spec.?os.?name.orValue('linux') == 'linux' ? [] : ['spec.os.name']) + \
            (has(variables.context.windowsOptions) ? ['spec.securityContext.windowsOptions'] : []) + \
            variables.contexts.filter(c, has(c.is.windowsOptions)).map(c, c.at + '.windowsOptions')",
        says: "pods of tenant {tenant} run on Linux; remove the field",
    },
    Rule {
        name: "escalation",
        at: "variables.contexts.filter(c, c.is.?allowPrivilegeEscalation.orValue(true)).map(c, c.at + \
            '.allowPrivilegeEscalation')",
        says: "programs of tenant {tenant} gain no rights; set it to false",
    },
    Rule {
        name: "privileged",
        at: "variables.contexts.filter(c, c.is.?privileged.orValue(false)).map(c, c.at + '.privileged')",
        says: "pods of tenant {tenant} are not privileged; remove the field",
    },
    Rule {
        name: "capabilities",
        at: "variables.contexts.filter(c, !c.is.?capabilities.?drop.orValue([]).exists(name, name == 'ALL')) .map(c, \
            c.at + '.capabilities.drop') + variables.contexts.filter(c, \
            c.is.?capabilities.?add.orValue([]).exists(name, name != 'NET_BIND_SERVICE')) .map(c, c.at + \
            '.capabilities.add')",
        says: "pods of tenant {tenant} have no capabilities; remove `add`, and drop ALL",
    },
    Rule {
        name: "proc-mount",
        at: "variables.contexts.filter(c, c.is.?procMount.orValue('Default') != 'Default').map(c, c.at + \
            '.procMount')",
        says: "pods of tenant {tenant} see /proc as by default; remove the field",
    },
    Rule {
        name: "host-namespaces",
        at: "['hostNetwork', 'hostPID', 'hostIPC'].filter(field, field in variables.spec && variables.spec[field]) \
            .map(field, 'spec.' + field)",
        says: "pods of tenant {tenant} share nothing with the node; remove the field",
    },
    Rule {
        name: "host-ports",
        at: "variables.containers.filter(c, c.is.?ports.orValue([]).exists(p, p.?hostPort.orValue(0) != 0)).map(c, \
            c.at + '.ports')",
        says: "pods of tenant {tenant} have no ports of the node; remove hostPort, and make a Service",
    },
    Rule {
        name: "sysctls",
        at: "variables.context.?sysctls.orValue([]).size() == 0 ? [] : ['spec.securityContext.sysctls']",
        says: "pods of tenant {tenant} set nothing of the kernel; remove the field",
    },
    Rule {
        name: "node-name",
        at: "variables.spec.?nodeName.orValue('') == '' || request.operation != 'CREATE' ? [] : ['spec.nodeName']",
        says: "the scheduler chooses the node; use a nodeSelector",
    },
    Rule {
        name: "scheduler",
        at: "variables.spec.?schedulerName.orValue('') in SCHEDULERS ? [] : ['spec.schedulerName']",
        says: "pods of tenant {tenant} are placed by the scheduler of the platform; remove the field",
    },
    Rule {
        name: "priority",
        at: "variables.spec.?priorityClassName.orValue('').startsWith('system-') ? ['spec.priorityClassName'] : []",
        says: "classes of the system are not for tenants; name another one",
    },
    Rule {
        name: "volumes",
        at: "variables.volumes.filter(v, v.exists(key, !(key in ['name', 'hostPath'] + VOLUMES))).map(v, \
            'spec.volumes[' + v.name + ']')",
        says: "a tenant mounts its claims, ConfigMaps, Secrets, images, folders that are the pod's own, and the folders \
            of nodes that it was given; use one of these",
    },
    Rule {
        name: "folders",
        at: "variables.folderVolumes.filter(v, !(v.hostPath.path in variables.writable + variables.readable) || \
            !(v.hostPath.?type.orValue('') in ['', 'Directory', 'File'])).map(v, 'spec.volumes[' + v.name + \
            '].hostPath')",
        says: "tenant {tenant} may mount the folders of nodes that its Tenant names in hostPaths, each as a whole (what \
            is in one by subPath), and makes none; name one of these, or ask an administrator",
    },
    Rule {
        name: "folders-to-read",
        at: "variables.folderVolumes.filter(v, v.hostPath.path in variables.readable && !(v.hostPath.path in \
            variables.writable) && variables.containers.exists(c, c.is.?volumeMounts.orValue([]).exists(m, m.name == \
            v.name && !m.?readOnly.orValue(false)))) .map(v, 'spec.volumes[' + v.name + '].hostPath')",
        says: "tenant {tenant} may only read this folder; mount it with readOnly: true",
    },
    Rule {
        name: "devices",
        at: "variables.containers.filter(c, c.is.?resources.?requests.orValue({}).exists(key, key.contains('/') && \
            !(key in variables.devices) && !('*' in variables.devices))).map(c, c.at + '.resources.requests') + \
            variables.containers.filter(c, c.is.?resources.?limits.orValue({}).exists(key, key.contains('/') && \
            !(key in variables.devices) && !('*' in variables.devices))).map(c, c.at + '.resources.limits') + \
            (variables.spec.?resourceClaims.orValue([]).size() == 0 || '*' in variables.devices ? [] : \
            ['spec.resourceClaims'])",
        says: "tenant {tenant} may ask for the devices that its Tenant names and no others; ask an administrator",
    },
    Rule {
        name: "queue",
        at: "['scheduling.volcano.sh/queue-name', 'volcano.sh/queue-name'].filter(key, key in variables.annotations \
            && !(variables.annotations[key] in variables.queues)).map(key, 'metadata.annotations[' + key + ']')",
        says: "tenant {tenant} may not use this queue; name one of those of its Tenant",
    },
];
