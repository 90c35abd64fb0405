// Command openai-go asks a server, through OpenAI's own Go library, for what
// TestClients wants to see, and prints what it got as JSON. It is a module of
// its own, so that the library isn't a dependency of the main one.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"os"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// result is what every client of the test prints.
type result struct {
	Models     []string `json:"models"`
	Text       string   `json:"text"`
	Stream     []string `json:"stream"`
	Chat       string   `json:"chat"`
	ChatFinish string   `json:"chat_finish"`
	ChatStream string   `json:"chat_stream"`
	Usage      []int64  `json:"usage"`
	Refused    []any    `json:"refused"`
}

func main() {
	log.SetFlags(0)
	ctx := context.Background()
	client := openai.NewClient(option.WithBaseURL(os.Args[1]), option.WithAPIKey("none"), option.WithMaxRetries(0))
	model := os.Args[2]
	var r result

	models, err := client.Models.List(ctx)
	check(err)
	for _, m := range models.Data {
		r.Models = append(r.Models, m.ID)
	}

	ask := openai.CompletionNewParams{
		Model:     openai.CompletionNewParamsModel(model),
		Prompt:    openai.CompletionNewParamsPromptUnion{OfString: openai.String("Hi")},
		MaxTokens: openai.Int(8),
	}
	completion, err := client.Completions.New(ctx, ask)
	check(err)
	r.Text = completion.Choices[0].Text

	ask.StreamOptions.IncludeUsage = openai.Bool(true)
	stream := client.Completions.NewStreaming(ctx, ask)
	for stream.Next() {
		event := stream.Current()
		for _, c := range event.Choices {
			r.Stream = append(r.Stream, c.Text)
		}
		if event.Usage.TotalTokens > 0 {
			r.Usage = []int64{event.Usage.PromptTokens, event.Usage.CompletionTokens, event.Usage.TotalTokens}
		}
	}
	check(stream.Err())

	talk := openai.ChatCompletionNewParams{
		Model:               model,
		Messages:            []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Hi")},
		MaxCompletionTokens: openai.Int(8),
	}
	chat, err := client.Chat.Completions.New(ctx, talk)
	check(err)
	r.Chat, r.ChatFinish = chat.Choices[0].Message.Content, string(chat.Choices[0].FinishReason)

	chatStream := client.Chat.Completions.NewStreaming(ctx, talk)
	var whole openai.ChatCompletionAccumulator
	for chatStream.Next() {
		whole.AddChunk(chatStream.Current())
	}
	check(chatStream.Err())
	r.ChatStream = whole.Choices[0].Message.Content

	ask = openai.CompletionNewParams{Model: ask.Model, Prompt: ask.Prompt, Temperature: openai.Float(0.5)}
	_, err = client.Completions.New(ctx, ask)
	if refused := new(openai.Error); errors.As(err, &refused) {
		r.Refused = []any{refused.StatusCode, refused.Code, refused.Param}
	}
	check(json.NewEncoder(os.Stdout).Encode(r))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
