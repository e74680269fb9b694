// Package kubernetes_test decodes deploy/kubernetes.yaml strictly into the types of the Kubernetes API and checks
// the promises of the documents. It is a module of its own, so that notifier gains no dependency.
package kubernetes_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// shutdownTimeout is the default of SHUTDOWN_TIMEOUT.
const shutdownTimeout = 25 * time.Second

// notifierUser is the user of the image, and its group.
const notifierUser = "65532:65532"

// manifest decodes the file. Any field that the API does not have fails the test.
func manifest(t *testing.T) (deployment appsv1.Deployment, budget policyv1.PodDisruptionBudget) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/kubernetes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(string(text), "\n---\n")
	if len(documents) != 2 {
		t.Fatalf("%d documents, expected 2", len(documents))
	}
	for i, into := range []any{&deployment, &budget} {
		text, err := yaml.YAMLToJSONStrict([]byte(documents[i]))
		if err != nil {
			t.Fatal(err)
		}
		// encoding/json would accept names in other cases, which Kubernetes ignores.
		unknown, err := json.UnmarshalStrict(text, into)
		if err := errors.Join(append(unknown, err)...); err != nil {
			t.Fatal(err)
		}
	}
	return deployment, budget
}

func TestKindsAndSelectors(t *testing.T) {
	deployment, budget := manifest(t)
	if deployment.APIVersion != "apps/v1" || deployment.Kind != "Deployment" {
		t.Errorf("first document: %v", deployment.TypeMeta)
	}
	if budget.APIVersion != "policy/v1" || budget.Kind != "PodDisruptionBudget" {
		t.Errorf("second document: %v", budget.TypeMeta)
	}
	pod := deployment.Spec.Template.Labels
	for name, selector := range map[string]map[string]string{
		"deployment": deployment.Spec.Selector.MatchLabels,
		"budget":     budget.Spec.Selector.MatchLabels,
		"spread":     deployment.Spec.Template.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels,
	} {
		if len(selector) == 0 || !labels.SelectorFromSet(selector).Matches(labels.Set(pod)) {
			t.Errorf("the selector of %s, %v, does not match the pod's labels %v", name, selector, pod)
		}
	}
	if replicas := *deployment.Spec.Replicas; int32(budget.Spec.MaxUnavailable.IntValue()) >= replicas {
		t.Errorf("the budget allows %s of %d replicas to be away", budget.Spec.MaxUnavailable, replicas)
	}
}

// TestGracePeriod: Kubernetes kills a worker only after the worker gave up by itself.
func TestGracePeriod(t *testing.T) {
	deployment, _ := manifest(t)
	seconds := *deployment.Spec.Template.Spec.TerminationGracePeriodSeconds
	if grace := time.Duration(seconds) * time.Second; grace < shutdownTimeout+5*time.Second {
		t.Errorf("terminationGracePeriodSeconds is %d, expected at least 5 s above %s", seconds, shutdownTimeout)
	}
}

func TestLeastPrivilege(t *testing.T) {
	deployment, _ := manifest(t)
	pod := deployment.Spec.Template.Spec
	container := pod.Containers[0].SecurityContext
	for what, holds := range map[string]bool{
		"runs as another user than root": *pod.SecurityContext.RunAsNonRoot,
		"reads secrets by its group":     fmt.Sprintf("%[1]d:%[1]d", *pod.SecurityContext.FSGroup) == notifierUser,
		"has a seccomp profile":          pod.SecurityContext.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault,
		"has no service account":         !*pod.AutomountServiceAccountToken,
		"has a read-only root":           *container.ReadOnlyRootFilesystem,
		"gains no privileges":            !*container.AllowPrivilegeEscalation,
		"has no capabilities":            slices.Equal(container.Capabilities.Drop, []corev1.Capability{"ALL"}),
		"has a memory limit":             !pod.Containers[0].Resources.Limits.Memory().IsZero(),
	} {
		if !holds {
			t.Errorf("not so: the pod %s", what)
		}
	}
}

// TestThePlatformMayChooseTheUser: OpenShift refuses a pod that names its user. Without one Kubernetes takes
// the user of the image, and can tell that it is not root only if it is a number.
func TestThePlatformMayChooseTheUser(t *testing.T) {
	deployment, _ := manifest(t)
	pod := deployment.Spec.Template.Spec
	container := pod.Containers[0].SecurityContext
	if pod.SecurityContext.RunAsUser != nil || container.RunAsUser != nil || container.RunAsNonRoot != nil {
		t.Errorf("pod %+v, container %+v; expected runAsNonRoot for the pod, and no user", pod.SecurityContext, container)
	}
	dockerfile, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	users := regexp.MustCompile(`(?m)^USER (.*)$`).FindAllStringSubmatch(string(dockerfile), -1)
	if len(users) != 1 || users[0][1] != notifierUser {
		t.Errorf("the Dockerfile has the users %q, expected %s alone", users, notifierUser)
	}
}

// TestSecretsAreReferences: no value in the file is a secret, and every X_FILE is a file of the mounted secret.
func TestSecretsAreReferences(t *testing.T) {
	deployment, _ := manifest(t)
	pod := deployment.Spec.Template.Spec
	container, volume := pod.Containers[0], pod.Volumes[0]
	mount := container.VolumeMounts[0]
	if volume.Name != mount.Name || volume.Secret == nil || !mount.ReadOnly {
		t.Fatalf("volume %+v is mounted as %+v, expected a secret", volume, mount)
	}
	if mode := *volume.Secret.DefaultMode; mode != 0o440 {
		t.Errorf("the secret's files have mode %o, expected 440", mode)
	}
	secret := []string{"NATS_URL", "REDIS_URL", "SLACK_BOT_TOKEN"}
	var files []string
	for _, variable := range container.Env {
		if slices.Contains(secret, variable.Name) {
			t.Errorf("%s is in the file itself", variable.Name)
		}
		if name, isFile := strings.CutSuffix(variable.Name, "_FILE"); isFile {
			files = append(files, name)
			want := mount.MountPath + "/" + strings.ToLower(strings.ReplaceAll(name, "_", "-"))
			if variable.Value != want {
				t.Errorf("%s is %s, expected %s", variable.Name, variable.Value, want)
			}
		}
	}
	if !slices.Equal(files, secret) {
		t.Errorf("secrets from files: %v, expected %v", files, secret)
	}
}

func TestProbes(t *testing.T) {
	deployment, _ := manifest(t)
	container := deployment.Spec.Template.Spec.Containers[0]
	if len(container.Ports) != 1 || container.Ports[0].ContainerPort != 8080 {
		t.Fatalf("ports %+v, expected 8080", container.Ports)
	}
	admin := corev1.EnvVar{Name: "ADMIN_ADDR", Value: "0.0.0.0:8080"}
	if !slices.Contains(container.Env, admin) {
		t.Errorf("ADMIN_ADDR is not %s", admin.Value)
	}
	for path, probe := range map[string]*corev1.Probe{"/healthz": container.LivenessProbe, "/readyz": container.ReadinessProbe} {
		if probe.HTTPGet.Path != path || probe.HTTPGet.Port.StrVal != container.Ports[0].Name {
			t.Errorf("probe %+v, expected %s of the port %s", probe.HTTPGet, path, container.Ports[0].Name)
		}
	}
}
