//! Hosts that are not as one expects: mounts below a grant or later, a /proc
//! that is partly hidden.

use bailey_tests::escape::Yard;

/// A naive remount leaves what is mounted below writable; the box refuses to
/// show such a folder, with the reason, and nothing of it runs.
#[test]
fn a_mount_below_a_read_only_grant_is_never_writable() {
    let yard = Yard::without_node();
    let ro = yard.path("stage/ro").display().to_string();
    let canary = yard.path("stage/rw/canary").display().to_string();
    let rw = yard.path("stage/rw").display().to_string();
    let output = yard.with_mounts(&format!(
        "mkdir {ro}/below; mount -t tmpfs t {ro}/below
         mkdir /tmp/naive-$$; mount --rbind {ro} /tmp/naive-$$; mount -o remount,ro,bind /tmp/naive-$$
         touch /tmp/naive-$$/x 2>/dev/null || touch /tmp/naive-$$/below/x && echo NAIVE
         $AS $BAILEY run -q --grant {ro}:ro --grant {rw}:rw -- \
         sh -c 'touch {rw}/canary; touch {ro}/below/y && echo WROTE' || echo \"code $?\"
         ls {ro}/below; umount -l /tmp/naive-$$; rmdir /tmp/naive-$$"
    ));
    let output = output.ok();
    assert!(output.stdout.contains("NAIVE"), "the control: {output}");
    assert!(!output.stdout.contains("WROTE"), "{output}");
    assert!(!output.stdout.lines().any(|line| line == "y"), "{output}");
    if output.stdout.contains("code 125") {
        assert!(
            output.stderr.contains("show read-only the granted"),
            "{output}"
        );
        assert!(
            !std::path::Path::new(&canary).exists(),
            "it ran all the same"
        );
    }
}

#[test]
fn what_the_host_mounts_later_does_not_appear_in_a_box() {
    let yard = Yard::without_node();
    let rw = yard.path("stage/rw").display().to_string();
    // The control is a namespace that hears of the host's mounts.
    let output = yard.with_mounts(&format!(
        "mount --bind {rw} {rw}; mount --make-rshared {rw}; mkdir {rw}/later; mkfifo {rw}/go {rw}/up
         look='echo up >{rw}/up; read -r _ <{rw}/go; ls {rw}/later'
         for how in plain box; do
           if [ $how = plain ]; then
             unshare --mount --propagation unchanged sh -c \"$look\" >{rw}/out-plain &
           else
             $AS $BAILEY run -q --grant {rw}:rw -- sh -c \"$look\" >{rw}/out-box &
           fi
           read -r _ <{rw}/up
           mount -t tmpfs t {rw}/later; touch {rw}/later/seen
           echo go >{rw}/go; wait $!
           umount {rw}/later
         done
         echo plain $(cat {rw}/out-plain) box $(cat {rw}/out-box)"
    ));
    assert_eq!(output.clone().ok().stdout, "plain seen box\n", "{output}");
}

/// A kernel shows no whole /proc to who sees only a part: containers do this.
#[test]
fn a_proc_that_is_partly_hidden_is_named_and_nothing_runs() {
    let yard = Yard::without_node();
    let rw = yard.path("stage/rw").display().to_string();
    for (how, mask) in [
        ("control", "true"),
        ("keys", "mount --bind /dev/null /proc/keys"),
        (
            "sys",
            "mount --bind /proc/sys /proc/sys; mount -o remount,ro,bind /proc/sys",
        ),
    ] {
        let output = yard.with_mounts(&format!(
            "{mask}; $AS $BAILEY run -q --grant {rw}:rw -- touch {rw}/ran-{how} || echo \"code $?\""
        ));
        let output = output.ok();
        let ran = yard.path(&format!("stage/rw/ran-{how}")).exists();
        if how == "control" {
            assert!(ran && output.stdout.is_empty(), "the control: {output}");
            continue;
        }
        assert!(!ran && output.stdout.contains("code 1"), "{how}: {output}");
        assert!(
            output.stderr.contains("/proc is partly hidden"),
            "{how}: {output}"
        );
    }
}

#[test]
fn a_proc_that_hides_other_users_is_no_hindrance() {
    for how in ["1", "2", "4"] {
        let yard = Yard::without_node();
        let output = yard.with_mounts(&format!(
            "mount -t proc -o hidepid={how} proc /proc
             $AS $BAILEY run -q -- sh -c 'ls -d /proc/1 /proc/self; id -u'"
        ));
        let (uid, _) = yard.ids();
        assert_eq!(
            output.clone().ok().stdout,
            format!("/proc/1\n/proc/self\n{uid}\n"),
            "{output}"
        );
    }
}

/// A second mount has another path, and shows the same files.
#[test]
fn the_nodes_folders_are_granted_by_no_other_mount_of_them() {
    let yard = Yard::without_node();
    let path = |below: &str| yard.path(below).display().to_string();
    let (home, state, rw) = (path("home"), path("state"), path("stage/rw"));
    let output = yard.with_mounts(&format!(
        "mkdir -p {home}/alias {home}/plain {home}/above/in
         mount --bind {state} {home}/alias; mount --bind {state} {home}/above/in
         mount --bind {rw} {home}/plain
         for what in plain alias alias/bailey above; do
           $AS $BAILEY run -q --grant {home}/$what:ro -- true && echo $what 0 || echo $what $?
         done"
    ));
    let wanted = "plain 0\nalias 2\nalias/bailey 2\nabove 2\n";
    assert_eq!(output.clone().ok().stdout, wanted, "{output}");
    assert!(output.stderr.contains("bailey's own folders"), "{output}");
}
