package api

// Model is a language model that agents of this server can use.
type Model struct {
	Name         string `json:"name"`
	Vendor       string `json:"vendor" doc:"who serves it: anthropic, openai, google, compat, script"`
	ID           string `json:"id" doc:"what the vendor calls it"`
	URL          string `json:"url,omitempty"`
	WindowTokens int    `json:"window_tokens,omitempty"`
	Guessed      bool   `json:"guessed,omitempty" doc:"the size of its window was not stated"`
	Source       string `json:"source" doc:"configuration, environment, local server, plugin; example: a script that plays the example, used where it is named alone"`
	State        string `json:"state" enum:"ready,key,no_key,down" doc:"key: its key is there, the vendor was not asked"`
	Default      bool   `json:"default,omitempty" doc:"used where nothing else is said"`
}

// ModelList is all of them.
type ModelList struct {
	Items []Model `json:"items"`
}
