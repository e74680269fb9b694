package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// photograph takes the pictures of a page.
func photograph(ctx context.Context, url string) error {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // root needs it
	}
	ctx, closeAll := chromedp.NewExecAllocator(ctx, options...)
	defer closeAll()
	ctx, closeTab := chromedp.NewContext(ctx)
	defer closeTab()
	for _, picture := range []struct {
		name, scheme  string
		width, height int64
		scale         float64
	}{
		{"page-light.png", "light", 1080, 1180, 1},
		{"page-dark.png", "dark", 1080, 1180, 1},
		{"page-phone.png", "light", 390, 844, 1.5},
	} {
		image, err := take(ctx, url, picture.scheme, picture.width, picture.height, picture.scale)
		if err != nil {
			return fmt.Errorf("%s: %w", picture.name, err)
		}
		if image, err = shrink(image); err != nil {
			return fmt.Errorf("%s: %w", picture.name, err)
		}
		if err := write(picture.name, image); err != nil {
			return err
		}
	}
	return nil
}

func take(ctx context.Context, url, scheme string, width, height int64, scale float64) ([]byte, error) {
	prefer := chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		features := []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme},
			{Name: "prefers-reduced-motion", Value: "reduce"},
		}
		_, err := chromedp.Call(
			ctx,
			emulation.SetEmulatedMedia,
			emulation.SetEmulatedMediaParams{Features: features},
		)
		return err
	})
	size := chromedp.EmulateViewport(width, height, chromedp.EmulateScale(scale))
	if err := chromedp.Do(ctx, prefer, size, chromedp.Navigate(url+"/?n=12")); err != nil {
		return nil, err
	}
	if _, err := chromedp.Run(
		ctx,
		chromedp.Poll[bool](
			`document.querySelectorAll("#events tbody tr").length > 0`,
			chromedp.WithPollingTimeout(20*time.Second),
		),
	); err != nil {
		return nil, err
	}
	return chromedp.Run(ctx, chromedp.CaptureScreenshot())
}

// shrink gives a picture with the 256 colours that it has most of: a page has few, and the file is a third as
// large.
func shrink(picture []byte) ([]byte, error) {
	from, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		return nil, err
	}
	counts := map[color.Color]int{}
	bounds := from.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			counts[from.At(x, y)]++
		}
	}
	most := slices.SortedFunc(
		maps.Keys(counts),
		func(a, b color.Color) int { return cmp.Compare(counts[b], counts[a]) },
	)
	to := image.NewPaletted(bounds, color.Palette(most[:min(len(most), 256)]))
	draw.Draw(to, bounds, from, bounds.Min, draw.Src)
	var out bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, to)
	return out.Bytes(), err
}
