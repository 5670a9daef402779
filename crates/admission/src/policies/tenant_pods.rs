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
    Variable { name: "byComponent", is: "COMPONENT" },
    Variable { name: "closed", is: "variables.of[?'pumice.sh/tenant-closed'].orValue('')" },
    Variable { name: "devices", is: "variables.of[?'pumice.sh/tenant-devices'].orValue('').split(',')" },
    Variable { name: "queues", is: "QUEUES" },
    Variable {
        name: "home",
        is: " \
            variables.of[?'pumice.sh/tenant-home'].orValue('').matches('^r[wo]:/[^:]*:(hostPath:/.*|claim:[^:]+)$') \
            ? [variables.of['pumice.sh/tenant-home']] : []",
    },
    Variable {
        name: "given",
        is: "(variables.home + variables.of[?'pumice.sh/tenant-volumes'].orValue('').split('\\n').filter(l, \
            l.matches('^r[wo]:/[^:]*:(hostPath:/.*|claim:[^:]+)$'))).map(l, l.split(':', 4))",
    },
    Variable {
        name: "folders",
        is: "variables.of[?'pumice.sh/tenant-host-paths'].orValue('').split('\\n').filter(l, \
            l.matches('^r[wo]:/')).map(l, l.split(':', 2)) + variables.given.filter(f, f[2] == 'hostPath').map(f, \
            [f[0], f[3]])",
    },
    Variable { name: "writable", is: "variables.folders.filter(f, f[0] == 'rw').map(f, f[1])" },
    Variable {
        name: "readable",
        is: "variables.folders.filter(f, f[0] == 'ro' && !(f[1] in variables.writable)).map(f, f[1])",
    },
    Variable { name: "readableClaims", is: "variables.given.filter(f, f[0] == 'ro' && f[2] == 'claim').map(f, f[3])" },
    Variable { name: "spec", is: "object.spec" },
    Variable { name: "context", is: "object.spec.?securityContext.orValue({})" },
    Variable { name: "annotations", is: "object.metadata.?annotations.orValue({})" },
    Variable { name: "labels", is: "object.metadata.?labels.orValue({})" },
    Variable {
        name: "creator",
        is: "!variables.byComponent ? request.userInfo.username : request.userInfo.username in TRUSTED && \
            variables.annotations[?'pumice.sh/user'].orValue('') != '' ? variables.annotations['pumice.sh/user'] : \
            variables.of[?'pumice.sh/tenant-user'].orValue('') != '' ? variables.of['pumice.sh/tenant-user'] : variables.tenant",
    },
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
    Variable {
        name: "everyContext",
        is: "[{'at': dyn('spec.securityContext'), 'is': dyn(variables.context)}] + variables.contexts",
    },
    Variable {
        name: "resources",
        is: "variables.containers.map(c, {'at': dyn(c.at + '.resources'), 'is': dyn(c.is.?resources.orValue({}))}) \
            + [{'at': dyn('spec.resources'), 'is': dyn(variables.spec.?resources.orValue({}))}]",
    },
    Variable { name: "volumes", is: "variables.spec.?volumes.orValue([])" },
];

/// The rules, in the order in which they are told: the first that a pod breaks.
pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "tenant-is-known",
        at: "variables.known ? [] : ['metadata.namespace']",
        says: "the annotations pumice.sh/tenant-uid, -gid and -groups of the namespace don't say who tenant \
            {tenant} is; an administrator sees why by: kubectl describe tenant {tenant}",
    },
    Rule {
        name: "tenant-is-open",
        at: "variables.closed == '' ? [] : ['metadata.namespace']",
        says: "tenant {tenant} gets no new work: {closed}",
    },
    Rule {
        name: "queue",
        at: "['scheduling.volcano.sh/queue-name', 'volcano.sh/queue-name'].filter(key, \
            !(variables.annotations[?key].orValue('') in [''] + variables.queues)).map(key, \
            'metadata.annotations[' + key + ']') + ['scheduling.volcano.sh/queue-name', \
            'volcano.sh/queue-name'].filter(key, !(variables.labels[?key].orValue('') in [''] + \
            variables.queues)).map(key, 'metadata.labels[' + key + ']')",
        says: "this queue is not among those of tenant {tenant}; name one that is",
    },
    Rule {
        name: "pods-of-kubelets",
        at: "variables.annotations.filter(key, key.startsWith('kubernetes.io/config.')).map(key, \
            'metadata.annotations[' + key + ']')",
        says: "marks a kubelet's own pods, and a tenant has none; remove it",
    },
    Rule {
        name: "old-profiles",
        at: "variables.annotations.filter(key, OLD_PROFILES.exists(prefix, key.startsWith(prefix))).map(key, \
            'metadata.annotations[' + key + ']')",
        says: "chooses another confinement; remove it",
    },
    Rule {
        name: "forged",
        at: "request.operation != 'CREATE' ? [] : (variables.annotations[?'pumice.sh/user'].orValue('') == \
            variables.creator ? [] : ['metadata.annotations[pumice.sh/user]']) + (variables.byComponent ? [] : \
            NOTES.filter(key, key in variables.annotations).map(key, 'metadata.annotations[' + key + ']') + \
            NOTES.filter(key, key in variables.labels).map(key, 'metadata.labels[' + key + ']'))",
        says: "is written by the platform; remove it",
    },
    Rule {
        name: "run-as-user",
        at: "variables.context.?runAsUser.orValue(0) == variables.uid ? [] : ['spec.securityContext.runAsUser']",
        says: "must be {uid}, which is the tenant's; remove the field",
    },
    Rule {
        name: "run-as-group",
        at: "variables.context.?runAsGroup.orValue(0) == variables.gid ? [] : ['spec.securityContext.runAsGroup']",
        says: "must be {gid}, which is the tenant's; remove the field",
    },
    Rule {
        name: "file-group",
        at: "variables.context.?fsGroup.orValue(0) == variables.gid ? [] : ['spec.securityContext.fsGroup']",
        says: "must be {gid}, which is the tenant's; remove the field",
    },
    Rule {
        name: "groups",
        at: "(variables.context.?supplementalGroups.orValue([]) == variables.groups ? [] : \
            ['spec.securityContext.supplementalGroups']) + \
            (variables.context.?supplementalGroupsPolicy.orValue('') == 'Strict' ? [] : \
            ['spec.securityContext.supplementalGroupsPolicy'])",
        says: "must be the tenant's groups and no others, not those of images either; remove the field",
    },
    Rule {
        name: "non-root",
        at: "variables.context.?runAsNonRoot.orValue(false) ? [] : ['spec.securityContext.runAsNonRoot']",
        says: "must be true for a tenant's pods; remove the field",
    },
    Rule {
        name: "seccomp",
        at: "variables.context.?seccompProfile.?type.orValue('') == 'RuntimeDefault' ? [] : \
            ['spec.securityContext.seccompProfile']",
        says: "must be RuntimeDefault for a tenant's pods; remove the field",
    },
    Rule {
        name: "as-the-pod",
        at: "variables.contexts.map(c, ['runAsUser', 'runAsGroup', 'runAsNonRoot', 'seccompProfile'].filter(field, \
            field in c.is).map(field, c.at + '.' + field)).filter(found, found.size() > 0).map(found, found[0])",
        says: "the pod says it for all of its containers; remove the field",
    },
    Rule {
        name: "profiles",
        at: "variables.everyContext.filter(c, c.is.?appArmorProfile.?type.orValue('') == 'Unconfined').map(c, c.at \
            + '.appArmorProfile') + variables.everyContext.filter(c, has(c.is.seLinuxOptions) && \
            c.is.seLinuxOptions.size() > 0).map(c, c.at + '.seLinuxOptions') + variables.everyContext.filter(c, \
            has(c.is.windowsOptions) && c.is.windowsOptions.size() > 0).map(c, c.at + '.windowsOptions')",
        says: "is no tenant's to choose; remove the field",
    },
    Rule {
        name: "windows",
        at: "variables.spec.?os.?name.orValue('linux') == 'linux' ? [] : ['spec.os.name']",
        says: "a tenant's pods run on Linux, not on windows; remove the field",
    },
    Rule {
        name: "sysctls",
        at: "variables.context.?sysctls.orValue([]).size() == 0 ? [] : ['spec.securityContext.sysctls']",
        says: "a tenant's pods set none; remove the field",
    },
    Rule {
        name: "escalation",
        at: "variables.contexts.filter(c, c.is.?allowPrivilegeEscalation.orValue(true)).map(c, c.at + \
            '.allowPrivilegeEscalation')",
        says: "must be false for a tenant's pods",
    },
    Rule {
        name: "privileged",
        at: "variables.contexts.filter(c, c.is.?privileged.orValue(false)).map(c, c.at + '.privileged')",
        says: "a tenant's pods have no rights of the machine; remove the field",
    },
    Rule {
        name: "capabilities",
        at: "variables.contexts.filter(c, c.is.?capabilities.?drop.orValue([]) != ['ALL'] || \
            c.is.?capabilities.?add.orValue([]).size() > 0).map(c, c.at + '.capabilities')",
        says: "must be drop: [ALL] and nothing else for a tenant's pods",
    },
    Rule {
        name: "proc-mount",
        at: "variables.contexts.filter(c, c.is.?procMount.orValue('Default') != 'Default').map(c, c.at + \
            '.procMount')",
        says: "must be Default for a tenant's pods",
    },
    Rule {
        name: "node-name",
        at: "variables.spec.?nodeName.orValue('') == '' || request.operation != 'CREATE' ? [] : ['spec.nodeName']",
        says: "the scheduler places a tenant's pods; name the node by a nodeSelector (kubernetes.io/hostname)",
    },
    Rule {
        name: "scheduler",
        at: "variables.spec.?schedulerName.orValue('') in SCHEDULERS || request.operation != 'CREATE' ? [] : \
            ['spec.schedulerName']",
        says: "places no pods of tenants; remove the field",
    },
    Rule {
        name: "host-namespaces",
        at: "['hostNetwork', 'hostPID', 'hostIPC'].filter(field, field in variables.spec && \
            variables.spec[field]).map(field, 'spec.' + field)",
        says: "a tenant's pods share nothing of the machine; remove the field",
    },
    Rule {
        name: "own-users",
        at: "variables.spec.?hostUsers.orValue(true) ? [] : ['spec.hostUsers']",
        says: "a tenant's pods have the tenant's uid on the machine, too; remove the field",
    },
    Rule {
        name: "runtime-class",
        at: "variables.spec.?runtimeClassName.orValue('') == '' ? [] : ['spec.runtimeClassName']",
        says: "no runtime class is a tenant's to choose; remove the field",
    },
    Rule {
        name: "priority",
        at: "(variables.spec.?priorityClassName.orValue('').startsWith('system-') ? ['spec.priorityClassName'] : \
            []) + (variables.spec.?priority.orValue(0) > 1000000000 ? ['spec.priority'] : [])",
        says: "is for the platform's own pods; name another class",
    },
    Rule {
        name: "tolerations",
        at: "variables.spec.?tolerations.orValue([]).filter(t, t.?key.orValue('') in [''] + PLATFORM_TAINTS || \
            t.?key.orValue('').startsWith('node-role.kubernetes.io/')).map(t, 'spec.tolerations[' + \
            t.?key.orValue('') + ']')",
        says: "keeps nodes free of people's pods; tolerate the taints only that are meant for yours",
    },
    Rule {
        name: "volumes",
        at: "variables.volumes.filter(v, v.exists(key, !(key in ['name', 'hostPath', 'ephemeral'] + \
            VOLUMES))).map(v, 'spec.volumes[' + v.name + ']')",
        says: "a tenant's pods have claims, objects of their namespace, empty folders and images; use one of these",
    },
    Rule {
        name: "projected",
        at: "variables.volumes.filter(v, v.?projected.?sources.orValue([]).exists(source, source.exists(key, !(key \
            in SOURCES)))).map(v, 'spec.volumes[' + v.name + '].projected')",
        says: "is no tenant's to have; project objects of the namespace only",
    },
    Rule {
        name: "ephemeral-claims",
        at: "variables.volumes.filter(v, has(v.ephemeral)).filter(v, \
            v.ephemeral.?volumeClaimTemplate.?spec.?volumeName.orValue('') != '' || \
            v.ephemeral.?volumeClaimTemplate.?spec.?dataSourceRef.?namespace.orValue('') != '').map(v, \
            'spec.volumes[' + v.name + '].ephemeral')",
        says: "names what may be another tenant's; leave volumeName and the namespace of data out",
    },
    Rule {
        name: "own-names",
        at: "variables.volumes.filter(v, v.name.startsWith('pumice-tenant-')).filter(v, \
            !variables.given.exists(f, (f[2] == 'hostPath' ? v.?hostPath.?path.orValue('') : \
            v.?persistentVolumeClaim.?claimName.orValue('')) == f[3])).map(v, 'spec.volumes[' + v.name + '].name')",
        says: "is the tenant's own volume; name yours otherwise",
    },
    Rule {
        name: "folders",
        at: "variables.volumes.filter(v, has(v.hostPath)).filter(v, !(v.hostPath.path in variables.writable + \
            variables.readable)).map(v, 'spec.volumes[' + v.name + '].hostPath.path')",
        says: "is not among the hostPaths of tenant {tenant}; mount one of those, with what is in it as subPath, or \
            have an administrator add it",
    },
    Rule {
        name: "folders-made",
        at: "variables.volumes.filter(v, has(v.hostPath)).filter(v, \
            v.hostPath.?type.orValue('').endsWith('OrCreate')).map(v, 'spec.volumes[' + v.name + \
            '].hostPath.type')",
        says: "the node would make it as its own; make it before, or mount the folder that it is to be in",
    },
    Rule {
        name: "read-only",
        at: "variables.volumes.filter(v, v.?hostPath.?path.orValue('') in variables.readable || \
            v.?persistentVolumeClaim.?claimName.orValue('') in variables.readableClaims).filter(v, \
            variables.containers.exists(c, c.is.?volumeMounts.orValue([]).exists(m, m.name == v.name && \
            !m.?readOnly.orValue(false)) || c.is.?volumeDevices.orValue([]).exists(d, d.name == v.name))).map(v, \
            'spec.volumes[' + v.name + ']')",
        says: "tenant {tenant} may only read it: mount it with readOnly: true",
    },
    Rule {
        name: "host-ports",
        at: "variables.containers.filter(c, c.is.?ports.orValue([]).exists(p, p.?hostPort.orValue(0) != 0)).map(c, \
            c.at + '.ports')",
        says: "a tenant's pods have no ports of the machine; remove hostPort, and use a Service",
    },
    Rule {
        name: "devices",
        at: "variables.resources.map(c, c.is.?limits.orValue({}).filter(key, key.contains('/') && \
            !key.matches('^([^/]*[.])?kubernetes[.]io/') && !(key in variables.devices) && !('*' in \
            variables.devices)).map(key, c.at + '.limits[' + key + ']')).filter(found, found.size() > \
            0).map(found, found[0]) + variables.resources.map(c, c.is.?requests.orValue({}).filter(key, \
            key.contains('/') && !key.matches('^([^/]*[.])?kubernetes[.]io/') && !(key in variables.devices) && \
            !('*' in variables.devices)).map(key, c.at + '.requests[' + key + ']')).filter(found, found.size() > \
            0).map(found, found[0])",
        says: "is not among the devices of tenant {tenant}; have an administrator add it",
    },
];
