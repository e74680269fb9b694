package main

import (
	"testing"

	"github.com/chromedp/chromedp"

	"notifier/internal/devstack"
	"notifier/test/kit"
)

// showEverything opens and unhides all of a page.
const showEverything = `
	document.querySelectorAll("details").forEach(e => e.open = true);
	document.querySelectorAll("[hidden]").forEach(e => e.hidden = false);`

// readContrast gives the texts with a contrast below 4.5:1 (WCAG 2.2, 1.4.3), and the rules of the style
// sheet that set a color which no text on the page has: nobody has looked at those.
const readContrast = `
	const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
	const paint = (color, opacity) => {
		canvas.globalAlpha = opacity;
		canvas.fillStyle = color;
		canvas.fillRect(0, 0, 1, 1);
	};
	const opacity = e => e ? opacity(e.parentElement) * getComputedStyle(e).opacity : 1;
	const background = (e, pseudo) => {
		if (!e) return paint("Canvas", 1);
		background(pseudo ? e : e.parentElement);
		paint(getComputedStyle(e, pseudo).backgroundColor, opacity(e));
	};
	const luminance = () => {
		const [r, g, b] = Array.from(canvas.getImageData(0, 0, 1, 1).data.slice(0, 3), v => v / 255)
			.map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
	};
	const contrast = (e, pseudo) => {
		background(e, pseudo);
		const behind = luminance();
		paint(getComputedStyle(e, pseudo).color, opacity(e));
		const text = luminance();
		return Math.max(text, behind) / Math.min(text, behind);
	};
	const texts = [], generated = e => ["::before", "::after"].filter(pseudo => !["none", "normal", '""'].includes(getComputedStyle(e, pseudo).content));
	for (const e of document.body.querySelectorAll("*:not(script, style, noscript, option)")) {
		if (!e.checkVisibility({ visibilityProperty: true })) continue;
		if (e.matches("select, input:not([type=checkbox]), textarea") || Array.from(e.childNodes).some(n => n.nodeType === Node.TEXT_NODE && n.data.trim() !== "")) texts.push([e]);
		if (e.placeholder) texts.push([e, "::placeholder"]);
		for (const pseudo of generated(e)) texts.push([e, pseudo]);
	}
	const rules = list => Array.from(list).flatMap(r => r.media ? matchMedia(r.media.mediaText).matches ? rules(r.cssRules) : [] : r.style?.color ? [r] : []);
	return {
		Texts: texts.length,
		Faint: texts.map(([e, pseudo]) => [contrast(e, pseudo), e, pseudo]).filter(([ratio]) => ratio < 4.5)
			.map(([ratio, e, pseudo]) => ratio.toFixed(2) + ":1 " + e.localName + "#" + e.id + "." + e.className + (pseudo ?? "") + " " + e.textContent.trim().slice(0, 40)),
		Unseen: rules(document.styleSheets[0].cssRules).map(r => r.selectorText)
			.filter(selector => !texts.some(([e]) => e.closest(selector.replace(/::?(before|after|placeholder|hover)/g, "")))),
	};`

// checkContrast looks at all texts of a page, in light and dark mode, on a desk and on a phone. Each way to
// prepare the page is run at once before the look, so that the page cannot draw in between.
func checkContrast(t *testing.T, b *browser, prepare ...string) {
	t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		b.prefer(t, "prefers-color-scheme", scheme)
		for _, width := range []int64{1080, 360} {
			b.do(t, chromedp.EmulateViewport(width, 740))
			unseen := map[string]int{}
			for _, prepare := range prepare {
				got := see[struct {
					Texts         int
					Faint, Unseen []string
				}](t, b, "(() => {"+showEverything+prepare+readContrast+"})()")
				if got.Texts < 20 {
					t.Errorf("%s, %d px: %d texts, expected more: nobody has looked at the page", scheme, width, got.Texts)
				}
				for _, faint := range got.Faint {
					t.Errorf("%s, %d px: %s", scheme, width, faint)
				}
				for _, selector := range got.Unseen {
					unseen[selector]++
				}
			}
			for selector, times := range unseen {
				if times == len(prepare) {
					t.Errorf("%s, %d px: no text has the color of %s", scheme, width, selector)
				}
			}
		}
	}
}

func TestContrastOfTheStatusPage(t *testing.T) {
	t.Parallel()
	b := openBrowser(t)
	p, server, slack := worker(t, map[string]string{"LIMIT_CATEGORY": "2/30m", "LIMIT_GROUP": "50/30m"})
	b.open(t, readyURL(t, &p.out))
	publishEach(t, server, "errors", 3, "team.deploys", 1)
	kit.Eventually(t, "all settled", func() bool { return len(p.out.lines(`"outcome":`)) == 4 })
	slack.Always(devstack.Behaviour{Code: "token_revoked"})
	publishEach(t, server, "payments", 1)
	b.waitForText(t, "#attention", "credentials")
	see[bool](t, b, showEverything+`; true`) // what is open asks
	b.waitForText(t, "#events", "errors")
	b.waitForText(t, ".many", "1") // counts come later than what is waited for
	const replica = `document.querySelector("#replicas .state bdi").className = `
	checkContrast(t, b, replica+`"ok";`, replica+`"bad";`)
}
