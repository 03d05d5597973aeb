package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"strings"
	"time"

	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/llmtest"
)

type row struct {
	name string
	try  func(context.Context, llm.Model, config) (note string, err error)
}

var rows = []row{
	{"text", text},
	{"streaming", streaming},
	{"tool call and result", toolCall},
	{"parallel tool calls", parallel},
	{"forced tool", forced},
	{"structured output", structured},
	{"long history", longHistory},
	{"image", picture},
	{"cancel", cancelled},
	{"unknown model", unknownModel},
}

const outputMax = 2000 // tokens; models that reason need some

var weather = llm.ToolSpec{
	Name: "get_weather", Description: "Returns the temperature in a city in degrees Celsius.",
	Schema: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string","description":"the name of the city"}},"required":["city"],"additionalProperties":false}`),
}

func ask(ctx context.Context, m llm.Model, req *llm.Request) (*llm.Response, []llm.Delta, error) {
	if req.OutputTokensMax == 0 {
		req.OutputTokensMax = outputMax
	}
	resp, deltas, err := llmtest.Ask(ctx, m, req)
	if err == nil && resp.Usage.Output == 0 {
		err = errors.New("no usage, not even an estimated one")
	}
	return resp, deltas, err
}

func question(s string) *llm.Request {
	return &llm.Request{System: []llm.Block{llm.Text("You are terse. Do exactly what is asked.")}, Messages: []llm.Message{llm.User(s)}}
}

func text(ctx context.Context, m llm.Model, _ config) (string, error) {
	resp, _, err := ask(ctx, m, question("Reply with the single word: pong"))
	if err != nil {
		return "", err
	}
	if !strings.Contains(strings.ToLower(resp.Message.String()), "pong") {
		return "", weak("it said " + resp.Message.String())
	}
	u := resp.Usage
	note := fmt.Sprintf("%d tokens in, %d out", u.Input+u.CacheRead+u.CacheWrite, u.Output)
	if u.Estimated {
		note += ", estimated: the server does not count"
	}
	return note, nil
}

func streaming(ctx context.Context, m llm.Model, _ config) (string, error) {
	began := time.Now()
	var first time.Duration
	n := 0
	for d, err := range m.Stream(ctx, withMax(question("Count from 1 to 40, separated by spaces."))) {
		if err != nil {
			return "", err
		}
		if d.Kind == llm.DeltaText || d.Kind == llm.DeltaReasoning {
			if n == 0 {
				first = time.Since(began)
			}
			n++
		}
	}
	if n < 2 {
		return "", weak(fmt.Sprintf("%d deltas: the server does not stream", n))
	}
	return fmt.Sprintf("%d deltas, the first after %s", n, first.Round(time.Millisecond)), nil
}

func withMax(req *llm.Request) *llm.Request {
	req.OutputTokensMax = outputMax
	return req
}

// toolCall goes round once: the result, and what the vendor wanted back.
func toolCall(ctx context.Context, m llm.Model, _ config) (string, error) {
	req := question("What is the temperature in Oslo? Use the tool.")
	req.Tools = []llm.ToolSpec{weather}
	resp, _, err := ask(ctx, m, req)
	if err != nil {
		return "", err
	}
	calls := resp.Message.Calls()
	if len(calls) == 0 {
		return "", weak("no call; it said " + resp.Message.String())
	}
	if resp.Stop != llm.StopTools {
		return "", fmt.Errorf("stopped with %q although there are calls", resp.Stop)
	}
	if calls[0].Raw || !strings.Contains(string(calls[0].Args), "Oslo") {
		return "", weak("its arguments: " + string(calls[0].Args))
	}
	req.Messages = append(req.Messages, identified(resp.Message), results(resp.Message, "17"))
	resp, _, err = ask(ctx, m, req)
	if err != nil {
		return "", fmt.Errorf("with the result: %w", err)
	}
	if !strings.Contains(resp.Message.String(), "17") {
		return "", weak("after the result it said " + resp.Message.String())
	}
	return "called, and used the result", nil
}

// identified gives ids to calls that came without, as an agent does.
func identified(m llm.Message) llm.Message {
	for i, c := range m.Calls() {
		if c.ID == "" {
			c.ID = fmt.Sprintf("call_%d", i)
		}
	}
	return m
}

func results(m llm.Message, text string) llm.Message {
	var all []llm.Result
	for i, c := range m.Calls() {
		all = append(all, llm.Result{CallID: c.ID, Name: c.Name, Blocks: []llm.Block{llm.Text(fmt.Sprintf("%s (%d)", text, i))}})
	}
	return llm.Results(all...)
}

func parallel(ctx context.Context, m llm.Model, _ config) (string, error) {
	req := question("Call the tool for Oslo, Rome and Lima, all three at once in one reply.")
	req.Tools = []llm.ToolSpec{weather}
	resp, _, err := ask(ctx, m, req)
	if err != nil {
		return "", err
	}
	calls := resp.Message.Calls()
	if len(calls) < 2 {
		return "", weak(fmt.Sprintf("%d calls in one reply", len(calls)))
	}
	req.Messages = append(req.Messages, identified(resp.Message), results(resp.Message, "9"))
	if _, _, err := ask(ctx, m, req); err != nil {
		return "", fmt.Errorf("with %d results: %w", len(calls), err)
	}
	return fmt.Sprintf("%d calls in one reply", len(calls)), nil
}

func forced(ctx context.Context, m llm.Model, _ config) (string, error) {
	req := question("Say hello.")
	req.Tools, req.Choice = []llm.ToolSpec{weather}, llm.Choice{Mode: llm.ChoiceTool, Name: weather.Name}
	resp, _, err := ask(ctx, m, req)
	if err != nil {
		return "", err
	}
	if calls := resp.Message.Calls(); len(calls) == 0 || calls[0].Name != weather.Name {
		return "", weak("the server does not force tools")
	}
	return "", nil
}

func structured(ctx context.Context, m llm.Model, _ config) (string, error) {
	req := question("Oslo has 700000 inhabitants. Answer as JSON.")
	req.Schema = &llm.Schema{Name: "city", Schema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"},"inhabitants":{"type":"integer"}},"required":["name","inhabitants"],"additionalProperties":false}`)}
	resp, _, err := ask(ctx, m, req)
	if err != nil {
		return "", err
	}
	var city struct {
		Name        string
		Inhabitants int
	}
	if json.Unmarshal([]byte(resp.Message.String()), &city) != nil || city.Inhabitants != 700000 {
		return "", weak("it said " + resp.Message.String())
	}
	return "", nil
}

// longHistory: forty steps with results, and a question about the first.
func longHistory(ctx context.Context, m llm.Model, _ config) (string, error) {
	req := question("The code word is heliotrope. Now ask for the weather of some cities.")
	req.Tools = []llm.ToolSpec{weather}
	for i := range 40 {
		id := fmt.Sprintf("call_%03d", i)
		req.Messages = append(req.Messages,
			llm.Assistant(llm.Block{Kind: llm.KindCall, Call: llm.NewCall(id, weather.Name, fmt.Sprintf(`{"city":"city number %d"}`, i))}),
			llm.Results(llm.Result{CallID: id, Name: weather.Name, Blocks: []llm.Block{llm.Text(fmt.Sprint(i))}}))
	}
	req.Messages = append(req.Messages, llm.Assistant(llm.Text("Done.")), llm.User("What was the code word? Answer without a tool."))
	resp, _, err := ask(ctx, m, req)
	if err != nil {
		return "", err
	}
	if !strings.Contains(strings.ToLower(resp.Message.String()), "heliotrope") {
		return "", weak("it said " + resp.Message.String())
	}
	return fmt.Sprintf("%d messages", len(req.Messages)), nil
}

func picture(ctx context.Context, m llm.Model, c config) (string, error) {
	if !c.media {
		return "", skip("use -media for models that take images")
	}
	red := image.NewRGBA(image.Rect(0, 0, 64, 64))
	for i := range 64 * 64 {
		red.Set(i%64, i/64, color.RGBA{220, 0, 0, 255})
	}
	var data bytes.Buffer
	if err := png.Encode(&data, red); err != nil {
		return "", err
	}
	req := question("Which colour is this? One word.")
	req.Messages[0].Blocks = append(req.Messages[0].Blocks, llm.Block{Kind: llm.KindMedia, Media: &llm.Media{Type: "image/png", Data: data.Bytes()}})
	resp, _, err := ask(ctx, m, req)
	if err != nil {
		return "", err
	}
	if !strings.Contains(strings.ToLower(resp.Message.String()), "red") {
		return "", weak("it said " + resp.Message.String())
	}
	return "", nil
}

// cancelled: the call ends soon after the context, wherever it is then.
func cancelled(ctx context.Context, m llm.Model, _ config) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := time.AfterFunc(300*time.Millisecond, cancel)
	defer timer.Stop()
	began := time.Now()
	_, _, err := ask(ctx, m, question("Write a long story about a lighthouse."))
	took := time.Since(began)
	switch {
	case err == nil:
		return "", skip("it was done before it could be cancelled")
	case !errors.Is(err, context.Canceled):
		return "", err
	case took > 2*time.Second:
		return "", fmt.Errorf("it took %s to end", took)
	}
	return "", nil
}

func unknownModel(ctx context.Context, _ llm.Model, c config) (string, error) {
	c.model = "no-such-model-7f3a"
	m, err := open(c)
	if err != nil {
		return "", err
	}
	_, _, err = ask(ctx, m, question("hi"))
	switch trouble := llm.TroubleOf(err); {
	case err == nil:
		return "", skip("the server answers to any name")
	case trouble == llm.BadRequest || trouble == llm.Refused:
		return string(trouble), nil
	}
	return "", fmt.Errorf("not told as a bad request: %w", err)
}
