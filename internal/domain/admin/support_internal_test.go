package admin

import (
	"os/exec"
	"strings"
	"testing"

	"cutroom/internal/domain/credit"
)

// Support copies the command into a shell. The order number, which a client chose, stays one argument there, and is no
// flag.
func TestCommandsHoldHostileOrders(t *testing.T) {
	for _, order := range []string{"GPA.1-2..0", "a b", "$(id)", "`id`", "'; id; '", `\'; id; \'`, `"$HOME"`, "a;id", "a&id", "a|id", "~", "*", "#", "é",
		"--receipt", "-h", "-'; id"} {
		argument := order
		if order[0] == '-' {
			argument = "--\n" + order
		}
		for reason, want := range map[string]string{
			credit.ReasonUnanswered: "cutroom\npurchase\nverify\nplatform_b\n" + argument + "\n--user\nu1\n",
			"other_account":         "cutroom\nuser\nshow\n" + argument + "\n",
			"receipt_invalid":       "cutroom\ncredits\ngrant\nu1\nCREDITS\n--reason\nREASON\n--order\nplatform_b:" + order + "\n",
		} {
			f := Refusal{Platform: credit.PlatformB, OrderID: order, Reason: reason}
			f.explain("u1")
			out, err := exec.Command("sh", "-c", `printf '%s\n' `+string(f.Command)).Output()
			if err != nil || string(out) != want {
				t.Errorf("order %q: a shell reads %q (%v) in %s", order, strings.Split(string(out), "\n"), err, f.Command)
			}
		}
	}
}
